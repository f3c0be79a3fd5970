// Stands behind the page's own script: uses the page as a reader does and tells what it saw.
(function () {
  "use strict";
  const wrong = window.wrong;
  const seen = { numbers: 0, pictures: 0, folios: 0, tips: 0, strips: 0, charts: 0,
    refusals: 0, width: innerWidth };
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
    const name = figure.querySelector("figcaption").textContent;
    const shapes = ["rect", "path", "circle", "line"].map(function (shape) {
      return "svg[role=img] " + shape;
    });
    check(figure.querySelector(shapes.join(", ")) !== null, "no marks: " + name);
    check(figure.querySelector("details table") !== null, "no table next to: " + name);
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
  function width(strip) { return strip.viewBox.baseVal.width; }

  function useStrips(group) {
    const strip = group.querySelector("svg.strip[data-area], svg.strip[data-strip]");
    const all = width(strip);
    const folio = strip.dataset.strip === undefined ?
      /^\d+[KMG] folio, order \d+, first page \d+ .*\ncaused by: \w/ :
      /^(\d+[KMG] folio, order \d+: \w|most of these .*: \d+[KMG] folios)/;
    for (let part = 0.005; part < 1; part += 0.01) {
      point(strip, "pointermove", part);
      check(!tip.hidden, "no tip over a strip");
      if (folio.test(tip.textContent)) { seen.folios += 1; }
      else { check(/^no folio at/.test(tip.textContent), "tip: " + tip.textContent); }
    }
    point(strip, "pointerleave", 0.5);
    check(tip.hidden, "the tip stays");
    group.querySelector("button[aria-label='Zoom in']").click();
    for (const one of group.querySelectorAll("svg.strip")) {
      check(width(one) === Math.max(all / 2, 1), "strips of a group zoom together");
    }
    press(strip, "0");
    check(width(strip) === all, "0 shows all");
    if (all < 100) { return; }
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
  }
  for (const group of document.querySelectorAll("figure.strips")) {
    seen.strips += 1;
    if (seen.strips <= 2) { useStrips(group); }
  }

  for (const figure of document.querySelectorAll("figure, .overview")) {
    const marks = Array.from(figure.querySelectorAll("svg[role=img] [data-tip]"));
    if (marks.length === 0) { continue; }
    seen.tips += marks.length;
    point(marks[0], "pointermove", 0.5);
    check(tip.textContent === marks[0].dataset.tip && !tip.hidden, "a mark has a tip");
    point(marks[0], "pointerleave", 0.5);
    check(tip.hidden, "the tip of a mark stays");
    const stop = figure.querySelector("svg[role=img][tabindex='0']:not(.strip)");
    check(stop !== null, "no stop of the tab key");
    press(stop, "End");
    check(tip.textContent === marks[marks.length - 1].dataset.tip, "keys step through marks");
    press(stop, "Home");
    check(tip.textContent === marks[0].dataset.tip, "keys step back");
    press(stop, "Escape");
    check(tip.hidden, "Escape hides the tip of a mark");
  }
  for (const lane of document.querySelectorAll("svg.lane")) {
    const height = lane.getBoundingClientRect().height;
    check(height >= 20 && height <= 100, "a lane is as tall as its words: " + height);
  }
  for (const words of document.querySelectorAll("svg text")) {
    check(getComputedStyle(words).fill !== "none", "unseen: " + words.textContent);
  }
  const time = document.querySelector("svg.time");
  if (time) {
    point(time, "pointermove", 0.001);
    check(/^\d+ faults at 0.0%/.test(tip.textContent), "time: " + tip.textContent);
  }

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
  for (const one of document.querySelectorAll("details")) { one.open = true; }
  check(document.documentElement.scrollWidth <= innerWidth, "wider with its tables open");
  check(performance.getEntriesByType("resource").length === 0, "a request");
  check(window.harmed === undefined, "a name of the result ran");
  check(document.querySelectorAll("img, iframe, link").length === 0, "a foreign element");
  parent.postMessage(JSON.stringify({ seen: seen, wrong: wrong }), "*");
})();
