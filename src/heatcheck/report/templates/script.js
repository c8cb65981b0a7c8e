"use strict";
(() => {
  const DATA = JSON.parse(document.getElementById("data").textContent);
  const $ = (selector, from = document) => from.querySelector(selector);
  const $$ = (selector, from = document) => [...from.querySelectorAll(selector)];
  const SVG = "http://www.w3.org/2000/svg";

  // Text from the run only ever becomes text nodes: nothing here parses HTML.
  function make(tag, attributes = {}, ...children) {
    const node = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children.filter((child) => child !== null && child !== undefined));
    return node;
  }
  function draw(tag, attributes = {}, text = "") {
    const node = document.createElementNS(SVG, tag);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.textContent = text;
    return node;
  }
  function number(value, places) {
    if (value === null || value === undefined) return "–";
    const text = places === null ? value.toExponential(2) : value.toFixed(places);
    return (/[1-9]/.test(text) ? text : text.replace("-", "")).replace(/-/g, "−");
  }

  // Theme: the system's, unless the reader has chosen one.
  const root = document.documentElement;
  const keep = (action) => { try { return action(window.localStorage); } catch { return null; } };
  const chosen = keep((store) => store.getItem("heatcheck-theme"));
  if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;
  $("#theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    keep((store) => store.setItem("heatcheck-theme", root.dataset.theme));
  });

  // One model and one metric is shown at a time.
  function showCase(index) {
    for (const panel of $$("[data-case]")) panel.hidden = panel.dataset.case !== String(index);
    hintAtMore();
    window.dispatchEvent(new Event("resize"));
  }
  // Tables wider than the page have a shadow at the side where they continue.
  function hintAtMore() {
    for (const box of $$(".scrollbox")) {
      const table = $(".scroll", box);
      const hidden = table.scrollWidth - table.clientWidth;
      box.classList.toggle("more", hidden - table.scrollLeft > 1);
      $(".hint", box).hidden = hidden <= 1;
    }
  }
  for (const table of $$(".scrollbox .scroll")) table.addEventListener("scroll", hintAtMore, { passive: true });
  window.addEventListener("resize", hintAtMore);
  hintAtMore();

  const pick = $("#case");
  if (pick) {
    pick.addEventListener("change", () => showCase(pick.value));
    showCase(pick.value);
  }
  for (const list of $$('[role="tablist"]')) {
    const tabs = $$('[role="tab"]', list);
    const show = (chosen, focus) => {
      for (const tab of tabs) {
        const on = tab === chosen;
        tab.setAttribute("aria-selected", String(on));
        tab.tabIndex = on ? 0 : -1;
        const panel = $(`[data-panel="${tab.dataset.tab}"]`);
        panel.hidden = !on;
        panel.setAttribute("role", "tabpanel");
      }
      if (focus) chosen.focus();
    };
    tabs.forEach((tab, i) => {
      tab.addEventListener("click", () => { show(tab); clearNames(); });
      tab.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (step) show(tabs[(i + step + tabs.length) % tabs.length], true);
      });
    });
    show(tabs[0]);
  }

  // Mark the current section in the navigation.
  const links = new Map($$(".bar nav a").map((link) => [link.hash.slice(1), link]));
  if ("IntersectionObserver" in window) {
    const watch = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        for (const link of links.values()) link.classList.remove("here");
        links.get(entry.target.id).classList.add("here");
      }
    }, { rootMargin: "-30% 0px -65% 0px" });
    for (const id of links.keys()) watch.observe(document.getElementById(id));
  }

  // Tables sort by their cells' data-v; rows without a value stay last.
  for (const table of $$("[data-sortable]")) {
    const heads = $$("thead th", table);
    heads.forEach((head, column) => {
      const button = $(".sort", head);
      button.addEventListener("click", () => {
        const now = head.getAttribute("aria-sort");
        const first = button.dataset.first === "down" ? "descending" : "ascending";
        const way = now ? (now === "ascending" ? "descending" : "ascending") : first;
        for (const other of heads) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", way);
        const sign = way === "ascending" ? 1 : -1;
        const value = (row) => row.cells[column].dataset.v;
        const rows = $$("tbody tr", table);
        rows.sort((a, b) => {
          const x = value(a), y = value(b);
          if (x === "" || y === "") return (x === "") - (y === "");
          return sign * (column === 0 || isNaN(x) || isNaN(y) ? x.localeCompare(y) : Number(x) - Number(y));
        });
        $("tbody", table).append(...rows);
      });
    });
  }

  // Grids of cards and pictures have as many columns as leave no single one in the last row.
  function balance(box) {
    const most = Math.max(1, Math.floor(box.clientWidth / Number(box.dataset.balance)));
    const n = box.children.length;
    const filled = (columns) => (n % columns || columns) / columns;
    let best = most;
    for (let columns = most; columns > Math.max(1, 0.6 * most); columns -= 1) if (filled(columns) > filled(best)) best = columns;
    if (most > 1 && n > most) box.style.gridTemplateColumns = `repeat(${best}, minmax(0, 1fr))`;
    else box.style.removeProperty("grid-template-columns");
  }
  const balanceAll = () => $$("[data-balance]").forEach(balance);
  balanceAll();
  window.addEventListener("resize", balanceAll);

  // Names of points give way where they would lie over one another: those on the front stay first.
  function clearNames() {
    for (const plot of $$(".cost .plot")) {
      const kept = [];
      for (const name of [...$$(".name.front", plot), ...$$(".name:not(.front)", plot)]) {
        name.classList.remove("off");
        const a = name.getBoundingClientRect();
        const free = kept.every((b) => a.right < b.left || b.right < a.left || a.bottom - 2 < b.top || b.bottom - 2 < a.top);
        if (free && a.right <= innerWidth) kept.push(a);
        else name.classList.add("off");
      }
    }
  }
  clearNames();
  window.addEventListener("resize", clearNames);

  // One tooltip for the whole page.
  const tip = $("#tip");
  function showTip(event, ...lines) {
    tip.replaceChildren(...lines.map(([left, right]) => make("div", {}, make("span", {}, left), right ? make("b", {}, right) : null)));
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const x = Math.min(event.clientX + 14, innerWidth - box.width - 8);
    const y = event.clientY + 16 + box.height > innerHeight ? event.clientY - box.height - 12 : event.clientY + 16;
    tip.style.left = `${Math.max(x, 8)}px`;
    tip.style.top = `${Math.max(y, 8)}px`;
  }
  const hideTip = () => { tip.hidden = true; };
  for (const point of $$("[data-tip]")) {
    point.addEventListener("pointermove", (event) => showTip(event, [point.dataset.tip, ""], [point.dataset.sub, ""]));
    point.addEventListener("pointerleave", hideTip);
  }

  // Multiverse: show the ranking of the universe under the pointer and mark its choices.
  for (const table of $$("[data-spec]")) {
    const { labels, methods, ranks } = DATA.cases[Number(table.dataset.spec)].multiverse;
    let here = null;
    const mark = (u) => {
      for (const cell of $$(".hot", table)) cell.classList.remove("hot");
      if (u !== null) for (const cell of $$(`[data-u="${u}"]`, table)) cell.classList.add("hot");
      here = u;
    };
    table.addEventListener("pointermove", (event) => {
      const u = event.target.dataset.u;
      if (u === undefined) { mark(null); hideTip(); return; }
      if (u !== here) mark(u);
      const order = methods.map((name, row) => [name, ranks[row][u]]).filter(([, rank]) => rank !== null).sort((a, b) => a[1] - b[1]);
      showTip(event, [labels[u], ""], ...order.slice(0, 16).map(([name, rank]) => [name, String(rank)]));
    });
    table.addEventListener("pointerleave", () => { mark(null); hideTip(); });
  }

  // Curves: show values under the pointer; the legend hides and shows curves.
  for (const figure of $$("[data-curves]")) {
    const [c, k] = figure.dataset.curves.split(":").map(Number);
    const metric = DATA.cases[c].metrics[k];
    const { grid, means } = metric.curves;
    const plot = $(".plot", figure);
    const cross = $(".cross", figure);
    const series = new Map($$(".series", figure).map((node) => [node.dataset.series, node]));
    plot.addEventListener("pointermove", (event) => {
      const box = plot.getBoundingClientRect();
      const share = grid[0] + (grid.at(-1) - grid[0]) * Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1);
      let at = 0;
      grid.forEach((value, i) => { if (Math.abs(value - share) < Math.abs(grid[at] - share)) at = i; });
      const x = `${(100 * (grid[at] - grid[0])) / (grid.at(-1) - grid[0])}%`;
      cross.setAttribute("x1", x);
      cross.setAttribute("x2", x);
      plot.classList.add("hovered");
      const lines = Object.entries(means)
        .filter(([row]) => !series.get(row).classList.contains("off"))
        .map(([row, values]) => [DATA.cases[c].methods[row], values[at]])
        .sort((a, b) => b[1] - a[1])
        .slice(0, 14)
        .map(([name, value]) => [name, number(value, 3)]);
      showTip(event, [`${Math.round(100 * grid[at])} % removed`, ""], ...lines);
    });
    plot.addEventListener("pointerleave", () => { plot.classList.remove("hovered"); hideTip(); });
    for (const button of $$(".legend button", figure)) {
      const mine = series.get(button.dataset.series);
      button.addEventListener("click", () => {
        const off = mine.classList.toggle("off");
        button.setAttribute("aria-pressed", String(!off));
      });
      button.addEventListener("pointerenter", () => { plot.classList.add("dimmed"); mine.classList.add("hot"); });
      button.addEventListener("pointerleave", () => { plot.classList.remove("dimmed"); mine.classList.remove("hot"); });
    }
  }

  // Texts: lines of coloured tokens, folded where a map has no strong one.
  const shade = (map, i) => {
    const share = (map.steps[i] - map.low) / 1000;
    return map.unit ? Math.floor(8 * Math.min(Math.max(share, -1), 1) + 0.5) : 0;
  };
  const worth = (map, i) => {
    if (!map.unit) return "0";
    const places = 2 - Math.floor(Math.log10(1000 * map.unit));
    return number(map.steps[i] * map.unit, places < -4 || places > 6 ? null : Math.max(places, 0));
  };
  function textLine(item, map, start, stop) {
    const line = make("div", { class: "line", dir: "auto" });
    let into = line;
    for (let i = start; i < stop; i += 1) {
      const marked = item.marked.includes(i);
      const piece = item.pieces[i];
      const gap = i > start && piece.startsWith(" ") ? " " : "";
      if (marked !== (into !== line)) {
        if (into !== line) { line.append(into); into = line; }
        if (marked) { line.append(gap); into = make("u"); } else into.append(gap);
      } else into.append(gap);
      const level = map ? shade(map, i) : 0;
      const special = { class: "sp", dir: "ltr" };  // [CLS] does not decide where its line begins
      into.append(make("i", item.special.includes(i) ? special : level ? { class: `t${level}` } : {}, piece.trimStart()));
    }
    if (into !== line) line.append(into);
    return line;
  }
  function textLines(item, map) {
    const found = [];
    const lines = item.ends.map((stop, k) => textLine(item, map, k ? item.ends[k - 1] : 0, stop));
    let at = 0;
    for (const [first, last] of [...(map || item).folds, [lines.length, lines.length]]) {
      found.push(...lines.slice(at, first));
      if (first < last) {
        const words = item.words.slice(first, last).reduce((a, b) => a + b, 0);
        const from = first ? item.ends[first - 1] : 0;
        const marked = item.marked.filter((i) => i >= from && i < item.ends[last - 1]).length;
        const summary = make("summary", {}, `${words} words`);
        if (marked) summary.append(", ", make("u", {}, `${marked} underlined`));
        found.push(make("details", { class: "fold" }, summary, ...lines.slice(first, last)));
      }
      at = last;
    }
    return found;
  }
  function sparkline(paths) {
    if (!paths) return null;
    const node = draw("svg", { class: "spark", viewBox: "0 0 100 100", preserveAspectRatio: "none", "aria-hidden": "true" });
    node.append(...paths.map((d, k) => (d ? draw("path", { class: `k${k}`, d }) : "")));
    return node;
  }

  // Exhibits: pictures and coloured texts, by kind.
  const RENDERERS = {
    image: (item, alt) => make("img", { src: item.src, alt, width: item.width, height: item.height }),
    text: (item) => make("div", { class: "reading" }, ...textLines(item, null)),
  };
  const exhibit = (item, alt) => (item ? RENDERERS[item.kind](item, alt) : null);
  const details = (sample) => Object.entries(sample.details).map(([word, text]) => `${word} ${text}`).join(" · ");

  function strip(cell, metric) {
    const [low, high] = [Math.min(...cell.strip), Math.max(...cell.strip)];
    const node = draw("svg", { class: "strip", role: "img", "aria-label": "scores of samples" });
    node.append(draw("line", { class: "base", x1: 0, x2: "100%", y1: 16, y2: 16 }));
    cell.strip.forEach((value, i) => {
      const x = high > low ? 1 + (98 * (value - low)) / (high - low) : 50;
      node.append(draw("circle", { cx: `${x}%`, cy: 16 + ((i * 7) % 5 - 2) * 2.6, r: 3.6 }));
    });
    node.append(draw("text", { x: 0, y: 42 }, number(low, metric.places)));
    if (high > low) node.append(draw("text", { x: "100%", y: 42, "text-anchor": "end" }, number(high, metric.places)));
    return node;
  }

  function drill(target, c, row, k) {
    const here = DATA.cases[c];
    const metric = here.metrics[k];
    const cell = here.cells[`${row}:${k}`];
    if (!cell) {
      target.replaceChildren(make("p", { class: "empty" }, "This method has no score under this metric."));
      return;
    }
    const missing = (words) => make("div", { class: "nomap" }, words);
    const one = ([id, score]) => {
      const sample = here.samples[id];
      const map = here.maps[`${row}:${id}`];
      const text = (sample.input || {}).kind === "text";
      const shown = text
        ? make("div", { class: "reading", "data-reading": `${c}:${map ? row : ""}:${id}`, tabindex: 0 }, ...textLines(sample.input, map))
        : make("div", { class: "two" }, ...(sample.input || map ? [exhibit(sample.input, "input") || missing("picture not stored"), exhibit(map, `map of ${here.methods[row]}`) || missing("no map stored")] : [missing("nothing stored")]));
      return make("div", { class: text ? "one long" : "one" }, shown,
        make("div", { class: "who" }, make("bdi", {}, sample.name), make("span", { class: "score" }, number(score, metric.places))),
        make("span", { class: "about" }, details(sample)));
    };
    const list = (title, found) => (found.length
      ? [make("h4", {}, title), make("div", { class: "row" }, ...found.map(one))] : []);
    target.replaceChildren(
      make("h4", {}, `${cell.n > cell.strip.length ? `${cell.strip.length} of ${cell.n} samples, evenly spaced from the lowest score to the highest` : "All samples"}, ${metric.better} is better`), strip(cell, metric),
      ...list("Best samples", cell.best), ...list("Worst samples", cell.worst));
  }

  const dialog = $("#dialog");
  function open(title) {
    $("#dialog-title").textContent = title;
    dialog.showModal();
    dialog.scrollTop = 0;
    return $(".drill", dialog);
  }
  $("#dialog-close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });

  for (const button of $$("[data-cell]")) {
    button.addEventListener("click", () => {
      const [c, row, k] = button.dataset.cell.split(":").map(Number);
      drill(open(`${DATA.cases[c].methods[row]} · ${DATA.cases[c].metrics[k].name}`), c, row, k);
    });
  }
  for (const box of $$("[data-drilled]")) {
    const c = Number(box.dataset.drilled);
    const choice = (what) => $(`[data-drill="${c}"][data-what="${what}"]`);
    const refresh = () => drill(box, c, Number(choice("method").value), Number(choice("metric").value));
    choice("method").addEventListener("change", refresh);
    choice("metric").addEventListener("change", refresh);
    refresh();
  }
  function withScores(figure) {
    const [c, row, id] = figure.dataset.map.split(":").map(Number);
    const here = DATA.cases[c];
    const scores = () => here.metrics.map((metric, k) => [metric.name, number((here.scores[`${row}:${id}`] || [])[k], metric.places)]);
    figure.addEventListener("pointermove", (event) => showTip(event, [here.methods[row], ""], ...scores()));
    figure.addEventListener("pointerleave", hideTip);
    const zoom = () => {
      hideTip();
      const copy = (node) => (node ? make("div", {}, node.cloneNode(true)) : null);
      const { input } = here.samples[id];
      const text = input && input.kind === "text";
      const list = make("dl", { class: "facts" }, ...scores().map(([name, score]) => make("div", {}, make("dt", {}, name), make("dd", {}, score))));
      const shown = text
        ? make("div", { class: "reading", "data-reading": figure.dataset.map, tabindex: 0 }, ...textLines(input, here.maps[`${row}:${id}`]))
        : make("div", { class: "big" }, copy($(".input img", figure.parentElement)), copy($("img", figure)));
      const curves = sparkline(here.sparks.paths[`${row}:${id}`]);
      const names = here.sparks.names.map((name, k) => [sparkline([...Array(k).fill(""), "M0 50L100 50"]), ` ${name} `]).flat();
      open(`${here.methods[row]} · ${here.samples[id].name}`).replaceChildren(
        shown, make("h4", {}, "Scores of this map"), list,
        ...(curves ? [make("h4", {}, "Output of the model as units are removed"), make("div", { class: "bigspark" }, curves), make("p", { class: "small muted" }, ...names)] : []));
    };
    figure.addEventListener("click", zoom);
    if (figure.tagName !== "BUTTON") figure.addEventListener("keydown", (event) => { if (event.key === "Enter") zoom(); });
  }
  $$("[data-map]").forEach(withScores);

  // The figure of models and methods as a file of its own.
  const save = $("#save-models");
  if (save) {
    save.addEventListener("click", () => {
      const file = new Blob([new XMLSerializer().serializeToString($("svg.modelfig"))], { type: "image/svg+xml" });
      const link = make("a", { href: URL.createObjectURL(file), download: "models-and-methods.svg" });
      link.click();
      URL.revokeObjectURL(link.href);
    });
  }

  // Long texts: a sentence is at the same height under all methods that stand side by side.
  const NARROWEST = 280;
  function align(box) {
    const columns = $$(".reading", box);
    const across = Math.min(columns.length, Math.max(1, Math.floor(box.clientWidth / NARROWEST)));
    const rows = Number(box.dataset.lines) + 1;
    box.style.gridTemplateColumns = `repeat(${across}, minmax(0, 1fr))`;
    columns.forEach((column, i) => {
      column.style.gridColumn = String((i % across) + 1);
      column.style.gridRow = `${Math.floor(i / across) * rows + 1} / span ${rows}`;
      let row = 1;
      for (const part of column.children) {
        const span = part.matches(".fold") ? $$(".line", part).length : 1;
        part.style.gridRow = `${row} / span ${span}`;
        row += span;
      }
    });
    box.classList.add("aligned");
  }
  const longTexts = $$(".readings:not(.short)");
  const alignAll = () => longTexts.forEach(align);
  alignAll();
  window.addEventListener("resize", alignAll);

  function column(key) {
    const [c, row, id] = key.split(":").map(Number);
    const here = DATA.cases[c];
    const map = here.maps[`${row}:${id}`];
    const name = make("button", { type: "button", "data-map": key }, make("span", { class: "method" }, make("code", {}, make("bdi", {}, here.methods[row]))));
    withScores(name);
    const head = make("div", { class: "head" }, name, make("small", {}, `full colour ${map.full}`), sparkline(here.sparks.paths[`${row}:${id}`]));
    return make("div", { class: "reading", "data-reading": key, tabindex: 0 }, head, ...textLines(here.samples[id].input, map));
  }
  for (const button of $$("[data-choose]")) {
    const key = button.dataset.choose;
    const box = $(".readings", button.closest("article"));
    button.addEventListener("click", () => {
      const there = $(`[data-reading="${key}"]`, box);
      if (there) there.remove();
      else {
        const place = (node) => Number(node.dataset.reading.split(":")[1] || -1);
        const added = column(key);
        const next = $$(".reading", box).find((other) => place(other) > place(added));
        box.insertBefore(added, next || null);
      }
      button.setAttribute("aria-pressed", String(!there));
      align(box);
    });
  }

  // The value of the token under the pointer, or under the arrow keys, and the same token under other methods.
  let pointed = null;
  function point(token, event) {
    if (pointed) for (const node of $$(".reading .same")) node.classList.remove("same");
    pointed = token;
    if (!token) { hideTip(); return; }
    const own = token.closest("[data-reading]");
    const at = $$("i", own).indexOf(token);
    const [c, , id] = own.dataset.reading.split(":").map(Number);
    const here = DATA.cases[c];
    const { input } = here.samples[id];
    const group = own.closest(".readings");
    const lines = [];
    for (const column of group ? $$(".reading", group) : [own]) {
      $$("i", column)[at].classList.add("same");
      const row = column.dataset.reading.split(":")[1];
      const map = here.maps[`${row}:${id}`];
      if (map && (column === own || !group.matches(".short"))) lines.push([here.methods[row], worth(map, at)]);
    }
    const piece = input.pieces[at].trim();
    const spelled = input.tokens[at];
    showTip(event, [piece || "part of a character", spelled === null ? "" : spelled], ...lines,
      ...(input.marked.includes(at) ? [["marked as the reason", ""]] : []), ...(input.special.includes(at) ? [["special token, never deleted", ""]] : []));
  }
  const tokenAt = (event) => (event.target.closest ? event.target.closest("[data-reading] i") : null);
  document.addEventListener("pointermove", (event) => {
    const token = tokenAt(event);
    if (token) point(token, event);
    else if (pointed) point(null);
  });
  document.addEventListener("click", (event) => { const token = tokenAt(event); if (token) point(token, event); });
  document.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key === "Escape" && pointed) point(null);
    if (!step || !document.activeElement.matches("[data-reading]")) return;
    const tokens = $$("i", document.activeElement).filter((token) => token.offsetParent);
    const next = tokens[(tokens.indexOf(pointed) + step + tokens.length) % tokens.length] || tokens[0];
    const box = next.getBoundingClientRect();
    point(next, { clientX: box.left, clientY: box.bottom - 8 });
    event.preventDefault();
  });
  window.addEventListener("beforeprint", () => { for (const fold of $$("details.fold")) fold.open = true; });
})();
