// Stands behind the page's own script: uses the page as a reader does and tells what it saw.
(function () {
  "use strict";
  const wrong = window.wrong;
  const seen = { numbers: 0, pictures: 0, folios: 0, charts: 0, refusals: 0, width: innerWidth };
  function check(holds, what) { if (!holds) { wrong.push(what); } }
  const json = JSON.parse(document.getElementById("result").textContent);
  function at(pointer) {
    return pointer.split("/").slice(1).reduce(function (value, part) {
      return value[part.replace(/~1/g, "/").replace(/~0/g, "~")];
    }, json);
  }
  for (const number of document.querySelectorAll("data[data-at]")) {
    seen.numbers += 1;
    const expected = at(number.dataset.at);
    check(Number(number.value) === expected, "number: " + number.dataset.at);
    check(number.textContent.trim() !== "", "empty: " + number.dataset.at);
  }
  for (const picture of document.querySelectorAll("svg[role=img]")) {
    seen.pictures += 1;
    check(picture.querySelector("title").textContent !== "", "a picture without a name");
  }
  for (const figure of document.querySelectorAll("figure")) {
    if (!figure.querySelector("svg[role=img]")) { continue; }
    const marks = figure.querySelectorAll("svg[role=img] rect, svg[role=img] path");
    check(marks.length > 0, "no marks: " + figure.querySelector("figcaption").textContent);
    check(figure.querySelector("table") !== null, "no table beside a picture");
  }
  const tip = document.getElementById("tip");
  function point(element, type, part) {
    const box = element.getBoundingClientRect();
    const where = { clientX: box.left + part * box.width, clientY: box.top + box.height / 2 };
    element.dispatchEvent(new PointerEvent(type, Object.assign({ bubbles: true }, where)));
  }
  function press(element, key) {
    element.dispatchEvent(new KeyboardEvent("keydown", { key: key, bubbles: true }));
  }

  const group = document.querySelector("figure.strips");
  const strip = group.querySelector("svg.strip[data-area]");
  const width = function (svg) { return svg.viewBox.baseVal.width; };
  const all = width(strip);
  const folio = /^\d+[KMG] folio, order \d+, first page \d+ .*\ncaused by: \w/;
  for (let part = 0.005; part < 1; part += 0.01) {
    point(strip, "pointermove", part);
    check(!tip.hidden, "no tip over a strip");
    if (folio.test(tip.textContent)) { seen.folios += 1; }
    else { check(/^no folio at/.test(tip.textContent), "tip: " + tip.textContent); }
  }
  point(strip, "pointerleave", 0.5);
  check(tip.hidden, "the tip stays");

  const zoom_in = group.querySelector("button[aria-label='Zoom in']");
  zoom_in.click();
  for (const one of group.querySelectorAll("svg.strip")) {
    check(width(one) === all / 2, "strips of a group zoom together");
  }
  press(strip, "0");
  check(width(strip) === all, "0 shows all");
  point(strip, "pointerdown", 0.25);
  point(strip, "pointermove", 0.5);
  point(strip, "pointerup", 0.5);
  check(Math.abs(width(strip) - all / 4) < all / 50, "dragging zooms: " + width(strip));
  group.querySelector("button[aria-label='Show all']").click();
  press(strip, "ArrowRight");
  const first = tip.textContent;
  press(strip, "ArrowRight");
  check(!tip.hidden && tip.textContent !== first, "arrows step");
  press(strip, "+");
  check(width(strip) === all / 2, "+ zooms");
  press(strip, "Escape");
  check(tip.hidden, "Escape hides the tip");

  const mark = document.querySelector("[data-tip]");
  point(mark, "pointermove", 0.5);
  check(tip.textContent === mark.dataset.tip, "a bar has a tip");
  const time = document.querySelector("svg.time");
  point(time, "pointermove", 0.001);
  check(/^\d+ faults at 0.0%/.test(tip.textContent), "time: " + tip.textContent);

  const per_million = /^[\d,]+ entr(y|ies)(: at least)?\n.*: [\d.,e+-]+ per million \([\d,]+\)/;
  for (const chart of document.querySelectorAll("svg.curve")) {
    seen.charts += 1;
    const rows = chart.dataset.rows.split(" ").map(Number);
    check(chart.querySelectorAll("path.line").length === rows.length, "a line for each cell");
    check(chart.querySelectorAll("circle.dot").length >= rows.length, "dots of the machine");
    check(chart.querySelectorAll("text.tick").length > 8, "axes");
    for (const part of [0.15, 0.5, 0.95]) {
      point(chart, "pointermove", part);
      check(!tip.hidden && per_million.test(tip.textContent), "curve: " + tip.textContent);
      check(chart.querySelector(".guide") !== null, "a guide");
    }
    point(chart, "pointerleave", 0.5);
    check(tip.hidden && chart.querySelector(".guide") === null, "the guide stays");
    press(chart, "ArrowRight");
    const side = json.rows[rows[0]].detail.tlb_curve[chart.dataset.side];
    check(/^1 entry: at least\n/.test(tip.textContent), "the first size: " + tip.textContent);
    check(tip.textContent.includes("(" + side[0][1].toLocaleString("en") + ")"), "its misses");
    press(chart, "ArrowRight");
    check(/^2 entries: at least\n/.test(tip.textContent), "the second size: " + tip.textContent);
    press(chart, "Escape");
    check(tip.hidden, "Escape hides the readout");
    const dot = chart.querySelector("circle.dot");
    point(dot, "pointermove", 0.5);
    check(/the machine's level 1/.test(tip.textContent), "dot: " + tip.textContent);
    const size = parseFloat(getComputedStyle(chart.querySelector("text.tick")).fontSize);
    const scale = chart.getBoundingClientRect().width / chart.viewBox.baseVal.width;
    check(size * scale >= 8, "text of a chart is too small: " + size * scale);
  }
  for (const bar of document.querySelectorAll("#refusals svg.row .reason")) {
    seen.refusals += 1;
    point(bar, "pointermove", 0.5);
    check(/: [\d,]+$/.test(tip.textContent), "refusal: " + tip.textContent);
  }

  const before = getComputedStyle(document.body).backgroundColor;
  document.getElementById("theme").click();
  check(getComputedStyle(document.body).backgroundColor !== before, "light and dark differ");

  check(document.documentElement.scrollWidth <= innerWidth, "wider than the window");
  check(performance.getEntriesByType("resource").length === 0, "a request");
  check(window.harmed === undefined, "a name of the trace ran");
  check(document.querySelectorAll("img, iframe, link").length === 0, "a foreign element");
  parent.postMessage(JSON.stringify({ seen: seen, wrong: wrong }), "*");
})();
