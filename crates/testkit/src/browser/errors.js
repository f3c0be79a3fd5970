// Stands before the page's own script: what goes wrong in it is kept for the probe.
window.wrong = [];
addEventListener("error", function (event) { window.wrong.push("error: " + event.message); });
addEventListener("securitypolicyviolation", function (event) {
  window.wrong.push("policy: " + event.violatedDirective);
});
