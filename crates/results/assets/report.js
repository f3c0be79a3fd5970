// Pointing, zoom, light and dark. The page is complete without; everything shown comes from the
// page itself: `data-tip`, or the result in #result.
(function () {
  "use strict";
  const result = JSON.parse(document.getElementById("result").textContent);
  const tip = document.getElementById("tip");
  const UNIT = 4096;
  const SVG = "http://www.w3.org/2000/svg";

  // --- light and dark -------------------------------------------------------------------------
  const theme = document.createElement("button");
  theme.id = "theme";
  theme.type = "button";
  function isDark() {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  }
  function nameTheme() { theme.textContent = isDark() ? "Light" : "Dark"; }
  theme.addEventListener("click", function () {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    nameTheme();
  });
  nameTheme();
  document.querySelector("header").prepend(theme);

  // --- the tip --------------------------------------------------------------------------------
  function show(text, x, y) {
    tip.textContent = text;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = Math.min(x + 14, innerWidth - box.width - 6);
    const above = y + 18 + box.height > innerHeight;
    tip.style.left = Math.max(4, left) + "px";
    tip.style.top = (above ? y - box.height - 10 : y + 18) + "px";
  }
  function hide() { tip.hidden = true; }

  function bytes(n) {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = 0;
    while (n >= 1024 && unit < 4) { n /= 1024; unit += 1; }
    return (Number.isInteger(n) ? n : n.toFixed(1)) + " " + units[unit];
  }
  function folioName(n) {
    return n >= 1 << 30 ? n / (1 << 30) + "G" : n >= 1 << 20 ? n / (1 << 20) + "M" : n / 1024 + "K";
  }

  // --- strips ---------------------------------------------------------------------------------
  // The folio at a place (in units of 4 KiB) of a strip; null for a hole.
  function folioAt(strip, unit) {
    const row = result.rows[Number(strip.dataset.row)];
    if (!row || !row.detail || strip.dataset.area === undefined) { return null; }
    const runs = row.detail.areas[Number(strip.dataset.area)].runs;
    const page = Math.floor(unit * UNIT / row.page_bytes);
    let low = 0, high = runs.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (runs[middle][0] <= page) { low = middle + 1; } else { high = middle; }
    }
    const run = runs[low - 1];
    if (!run || page >= run[0] + run[1]) { return null; }
    const pages = Math.pow(2, run[2]);
    const nr = Math.floor((page - run[0]) / pages);
    const first = run[0] + nr * pages;
    return {
      first: first * row.page_bytes / UNIT,
      units: Math.min(pages, run[1] - nr * pages) * row.page_bytes / UNIT,
      page: first, order: run[2], bytes: pages * row.page_bytes,
      cause: row.detail.causes[run[3]]
    };
  }
  // The same of a strip of `result.strips`, in units of its base page.
  function pieceAt(strip, unit) {
    const of = result.strips[Number(strip.dataset.strip)], page = Math.floor(unit);
    let low = 0, high = of.runs.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (of.runs[middle][0] <= page) { low = middle + 1; } else { high = middle; }
    }
    const run = of.runs[low - 1];
    if (!run || page >= run[0] + run[1]) { return null; }
    const how = result.hows[run[3]], pages = Math.pow(2, run[2]), bytes_of = pages * result.page_bytes;
    const whole = how !== "partial" && how !== "mostly";
    const step = how === "mostly" ? of.cell_pages : whole ? pages : run[1];
    const nr = Math.floor((page - run[0]) / step), first = run[0] + nr * step;
    const words = { pmd: "mapped by PMD entries", aligned: "whole and aligned",
      unaligned: "whole, not aligned", partial: run[1] + " pages of it are mapped" };
    const says = how === "mostly" ?
      "most of these " + bytes(step * result.page_bytes) + ": " + folioName(bytes_of) + " folios" :
      folioName(bytes_of) + " folio, order " + run[2] + ": " + words[how];
    return { first: first, units: Math.min(step, run[0] + run[1] - first),
      text: says + "\nat " + bytes(first * result.page_bytes) };
  }
  function foundAt(strip, unit) {
    return strip.dataset.strip === undefined ? folioAt(strip, unit) : pieceAt(strip, unit);
  }
  function describe(strip, unit) {
    const folio = foundAt(strip, unit);
    const name = strip.querySelector("title").textContent;
    if (folio && folio.text) { return folio.text + "\n" + name; }
    const unit_bytes = strip.dataset.strip === undefined ? UNIT : result.page_bytes;
    if (!folio) { return "no folio at " + bytes(Math.floor(unit) * unit_bytes) + "\n" + name; }
    return folioName(folio.bytes) + " folio, order " + folio.order + ", first page " + folio.page +
      " (at " + bytes(folio.first * UNIT) + ")\ncaused by: " + folio.cause + "\n" + name;
  }
  function view(strip) { return strip.viewBox.baseVal; }
  function unitAt(strip, clientX) {
    const box = strip.getBoundingClientRect(), at = view(strip);
    const part = Math.min(Math.max((clientX - box.left) / box.width, 0), 0.999999);
    return at.x + part * at.width;
  }

  function setUp(group) {
    const all = Number(group.dataset.units), unit_bytes = Number(group.dataset.unitBytes || UNIT);
    const strips = Array.from(group.querySelectorAll("svg.strip"));
    const axis = group.querySelectorAll(".axis span");
    function zoom(x, width) {
      width = Math.min(Math.max(width, 1), all);
      x = Math.min(Math.max(x, 0), all - width);
      for (const strip of strips) { strip.setAttribute("viewBox", x + " 0 " + width + " 10"); }
      axis[0].textContent = bytes(Math.round(x * unit_bytes));
      axis[1].textContent = bytes(Math.round((x + width) * unit_bytes));
    }
    function by(factor, at) {
      const now = view(strips[0]);
      const middle = at === undefined ? now.x + now.width / 2 : at;
      const width = now.width / factor;
      zoom(middle - (middle - now.x) / factor, width);
    }
    function shift(part) { const now = view(strips[0]); zoom(now.x + part * now.width, now.width); }
    const tools = document.createElement("div");
    tools.className = "tools";
    for (const [text, label, act] of [
      ["+", "Zoom in", function () { by(2); }],
      ["\u2212", "Zoom out", function () { by(0.5); }],
      ["\u2190", "Move left", function () { shift(-0.5); }],
      ["\u2192", "Move right", function () { shift(0.5); }],
      ["All", "Show all", function () { zoom(0, all); }]
    ]) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = text;
      button.setAttribute("aria-label", label);
      button.addEventListener("click", act);
      tools.append(button);
    }
    group.querySelector("figcaption").append(tools);

    for (const strip of strips) {
      let from = null, at = null;
      const mark = document.createElementNS(SVG, "rect");
      mark.setAttribute("class", "cursor");
      mark.setAttribute("height", "10");
      function point(first, units) {
        mark.setAttribute("x", first);
        mark.setAttribute("width", units);
        strip.append(mark);
      }
      strip.addEventListener("pointerdown", function (event) {
        from = unitAt(strip, event.clientX);
        if (event.pointerId) { try { strip.setPointerCapture(event.pointerId); } catch (_) { /* gone */ } }
      });
      strip.addEventListener("pointermove", function (event) {
        const unit = unitAt(strip, event.clientX);
        const folio = foundAt(strip, unit);
        if (from !== null) { point(Math.min(from, unit), Math.abs(unit - from)); }
        else if (folio) { point(folio.first, folio.units); } else { mark.remove(); }
        show(describe(strip, unit), event.clientX, event.clientY);
      });
      strip.addEventListener("pointerup", function (event) {
        const unit = unitAt(strip, event.clientX), start = from;
        from = null;
        if (start !== null && Math.abs(unit - start) > view(strip).width / 100) {
          mark.remove();
          zoom(Math.min(start, unit), Math.abs(unit - start));
        }
      });
      strip.addEventListener("pointerleave", function () { from = null; mark.remove(); hide(); });
      strip.addEventListener("pointercancel", function () { from = null; mark.remove(); hide(); });
      strip.addEventListener("dblclick", function () { zoom(0, all); });
      strip.addEventListener("wheel", function (event) {
        if (!event.ctrlKey && !event.metaKey) { return; }
        event.preventDefault();
        by(event.deltaY < 0 ? 1.5 : 1 / 1.5, unitAt(strip, event.clientX));
      }, { passive: false });
      strip.addEventListener("keydown", function (event) {
        const now = view(strip);
        const folio = at === null ? null : foundAt(strip, at);
        if (event.key === "+" || event.key === "=") { by(2, at === null ? undefined : at); }
        else if (event.key === "-") { by(0.5, at === null ? undefined : at); }
        else if (event.key === "0") { zoom(0, all); }
        else if (event.key === "ArrowRight") {
          at = at === null ? now.x : Math.min(folio ? folio.first + folio.units : at + 1, all - 1);
        } else if (event.key === "ArrowLeft") {
          at = at === null ? now.x : Math.max((folio ? folio.first : Math.floor(at)) - 1, 0);
        } else if (event.key === "Escape") { at = null; mark.remove(); hide(); return; }
        else { return; }
        event.preventDefault();
        if (at === null) { return; }
        const new_view = view(strip);
        if (at < new_view.x || at >= new_view.x + new_view.width) { zoom(at - new_view.width / 2, new_view.width); }
        const found = foundAt(strip, at), shown = view(strip), box = strip.getBoundingClientRect();
        if (found) { point(found.first, found.units); } else { point(Math.floor(at), 1); }
        show(describe(strip, at), box.left + (at - shown.x) / shown.width * box.width, box.bottom - 14);
      });
      strip.addEventListener("blur", function () { at = null; mark.remove(); hide(); });
    }
  }
  document.querySelectorAll("figure.strips").forEach(setUp);

  // --- other pictures -------------------------------------------------------------------------
  for (const part of document.querySelectorAll("[data-tip]")) {
    part.addEventListener("pointermove", function (event) {
      show(part.dataset.tip, event.clientX, event.clientY);
    });
    part.addEventListener("pointerleave", hide);
  }
  // Keys step through the marks of a figure: one stop of the tab key for each.
  for (const figure of document.querySelectorAll("figure, .overview")) {
    const marks = Array.from(figure.querySelectorAll("svg[role=img] [data-tip]"));
    if (marks.length === 0) { continue; }
    const stop = marks[0].closest("svg[role=img]");
    let at = -1;
    stop.tabIndex = 0;
    stop.addEventListener("keydown", function (event) {
      const steps = { ArrowRight: 1, ArrowLeft: -1, Home: -marks.length, End: marks.length };
      if (event.key === "Escape") { hide(); return; }
      if (steps[event.key] === undefined) { return; }
      event.preventDefault();
      at = Math.min(Math.max(at + steps[event.key], 0), marks.length - 1);
      for (const mark of marks) { mark.classList.toggle("at", mark === marks[at]); }
      const box = marks[at].getBoundingClientRect();
      show(marks[at].dataset.tip, box.left + box.width / 2, box.bottom - 10);
    });
    stop.addEventListener("blur", function () {
      at = -1;
      hide();
      for (const mark of marks) { mark.classList.remove("at"); }
    });
  }
  for (const picture of document.querySelectorAll("svg.time[data-row]")) {
    const buckets = result.rows[Number(picture.dataset.row)].detail.buckets;
    picture.addEventListener("pointermove", function (event) {
      const box = picture.getBoundingClientRect();
      const part = Math.min(Math.max((event.clientX - box.left) / box.width, 0), 0.999999);
      const nr = Math.floor(part * buckets.length);
      const value = picture.dataset.series === "faults" ?
        buckets[nr].faults + " faults" : bytes(buckets[nr].read_bytes) + " read";
      show(value + " at " + (100 * nr / buckets.length).toFixed(1) + "% of the references",
        event.clientX, event.clientY);
    });
    picture.addEventListener("pointerleave", hide);
  }
  // Misses over entries: the size nearest to the pointer, or the next by arrow key.
  for (const chart of document.querySelectorAll("svg.curve")) {
    const rows = chart.dataset.rows.split(" ").map(Number), side = chart.dataset.side;
    const [left, right, most] = chart.dataset.x.split(" ").map(Number);
    const [top, bottom] = chart.dataset.y.split(" ").map(Number);
    const points = result.rows[rows[0]].detail.tlb_curve[side];
    const names = chart.closest("section").querySelectorAll("ul.policies li");
    const name = chart.dataset.names.split(" ").map(function (nr) { return names[nr].textContent; });
    const place = function (n) { return left + Math.log2(n) / Math.log2(most) * (right - left); };
    const guide = document.createElementNS(SVG, "path");
    guide.setAttribute("class", "guide");
    let at = -1;
    function rate(row, misses) {
      const all = row.tlb.instruction.references + row.tlb.data.references;
      const value = all ? 1e6 * misses / all : 0;
      return value >= 100 ? Math.round(value).toLocaleString("en") : value.toPrecision(3);
    }
    function read(nr, x, y) {
      at = nr;
      const entries = points[nr][0];
      const lines = rows.map(function (number, line) {
        const row = result.rows[number], own = row.detail.tlb_curve[side];
        let last = own[0];
        for (const point of own) { if (point[0] <= entries) { last = point; } }
        return name[line] + ": " + rate(row, last[1]) + " per million (" +
          last[1].toLocaleString("en") + ")";
      });
      guide.setAttribute("d", "M" + place(entries) + " " + top + "V" + bottom);
      chart.append(guide);
      show(entries.toLocaleString("en") + (entries === 1 ? " entry" : " entries") +
        (entries <= 8 ? ": at least\n" : "\n") + lines.join("\n"), x, y);
    }
    function away() { at = -1; guide.remove(); hide(); }
    chart.addEventListener("pointermove", function (event) {
      if (event.target.dataset.tip) { guide.remove(); return; }
      const box = chart.getBoundingClientRect();
      const x = (event.clientX - box.left) / box.width * chart.viewBox.baseVal.width;
      let best = 0;
      points.forEach(function (point, nr) {
        if (Math.abs(place(point[0]) - x) < Math.abs(place(points[best][0]) - x)) { best = nr; }
      });
      read(best, event.clientX, event.clientY);
    });
    chart.addEventListener("pointerleave", away);
    chart.addEventListener("blur", away);
    chart.addEventListener("keydown", function (event) {
      if (event.key === "Escape") { away(); return; }
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) { return; }
      event.preventDefault();
      const next = Math.min(Math.max(at + step, 0), points.length - 1);
      const box = chart.getBoundingClientRect(), scale = box.width / chart.viewBox.baseVal.width;
      read(next, box.left + place(points[next][0]) * scale, box.top + top * scale);
    });
  }
  addEventListener("scroll", hide, { passive: true });
  // Paper has no details to open.
  addEventListener("beforeprint", function () {
    document.querySelectorAll("details.more").forEach(function (d) { d.open = true; });
  });
})();
