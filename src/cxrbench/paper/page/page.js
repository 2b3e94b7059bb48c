"use strict";
// Without this script everything is on the page; with it tables sort, words filter long tables and the claims, links
// unfold what they lead to, the rows of a table that is wider than the page become cards, and on a phone the contents
// and groups of tables are folded and figures enlarge. In a figure one series can be shown alone, and points say their values.
(() => {
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const make = (tag, of) => Object.assign(document.createElement(tag), of);
  const say = (text) => { document.getElementById("said").textContent = text; };
  const value = (row, index, numeric) => {
    const cell = row.cells[index], text = cell.textContent.trim();
    return numeric ? (cell.dataset.value === undefined ? null : Number(cell.dataset.value)) : text || null;
  };
  const compare = (a, b) => (typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true }));
  const sort = (table, header, index) => {
    const down = header.getAttribute("aria-sort") === "ascending";
    const rows = [...table.tBodies[0].rows].map((row) => [value(row, index, header.classList.contains("number")), row]);
    rows.sort(([a], [b]) => {
      if (a === null || b === null) return (a === null) - (b === null); // nothing to compare: last
      return down ? compare(b, a) : compare(a, b);
    });
    table.tBodies[0].append(...rows.map(([, row]) => row));
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", down ? "descending" : "ascending");
    say(`Sorted by ${header.textContent.trim()}, ${down ? "descending" : "ascending"}.`);
  };
  for (const table of all("table:not(.matrix)")) {
    [...table.tHead.rows[0].cells].forEach((header, index) => {
      const button = make("button");
      button.append(...header.childNodes);
      button.addEventListener("click", () => sort(table, header, index));
      header.append(button);
    });
  }
  for (const link of all("[href^='#term-']")) link.title = document.getElementById(link.hash.slice(1)).nextElementSibling.textContent;

  for (const figure of all("figure")) {
    const button = make("button", { className: "enlarge", textContent: "Enlarge", type: "button" });
    button.setAttribute("aria-label", `Enlarge: ${figure.querySelector("h3, h4").textContent}`);
    button.addEventListener("click", () => {
      button.setAttribute("aria-pressed", figure.classList.toggle("large"));
      button.textContent = figure.classList.contains("large") ? "Fit to the page" : "Enlarge";
    });
    figure.querySelector(".picture").before(button);

    const drawn = all("[data-series]", figure), names = [...new Set(drawn.map((one) => one.dataset.series))];
    if (names.length < 2) continue;
    const series = make("div", { className: "series" });
    series.setAttribute("role", "group");
    series.setAttribute("aria-label", "Show one series");
    for (const name of names) {
      const one = make("button", { textContent: name, type: "button" });
      one.setAttribute("aria-pressed", false);
      one.addEventListener("click", () => {
        const alone = one.getAttribute("aria-pressed") === "false";
        for (const other of series.children) other.setAttribute("aria-pressed", alone && other === one);
        for (const mark of drawn) mark.toggleAttribute("hidden", alone && mark.dataset.series !== name);
        say(alone ? `Only ${name} is shown.` : "All is shown.");
      });
      series.append(one);
    }
    figure.querySelector(".picture").before(series);
  }

  // What a point shows, beside the pointer or the finger; its title says the same without this script.
  const tip = make("div", { id: "tip", hidden: true }), words = new WeakMap();
  document.body.append(tip);
  for (const title of all("svg title")) { words.set(title.parentNode, title.textContent); title.remove(); }
  addEventListener("pointerover", ({ target, clientX, clientY }) => {
    tip.hidden = !words.has(target);
    if (tip.hidden) return;
    tip.textContent = words.get(target);
    tip.style.left = `${Math.max(0, Math.min(clientX + 12, innerWidth - tip.offsetWidth - 4))}px`;
    tip.style.top = `${Math.min(clientY + 14, innerHeight - tip.offsetHeight - 4)}px`;
  });

  if (matchMedia("(max-width: 40rem)").matches) for (const group of all(".group")) group.open = false;
  const contents = document.querySelector("nav details"), wide = matchMedia("(min-width: 62.5rem)");
  const unfold = () => { contents.open = wide.matches; };
  wide.addEventListener("change", unfold);
  unfold();
  contents.addEventListener("click", (event) => { if (event.target.closest("a")) unfold(); });

  // A study of own tables has no claims: what filters them then stands nowhere.
  const ledger = document.getElementById("ledger") || make("div"), rows = all("tbody tr", ledger), tiles = all("#claims .counts li");
  const label = make("label", { className: "filter" }), field = make("input", { type: "search" }), count = make("span", { className: "count" });
  let verdict = "all";
  const filter = () => {
    const words = field.value.toLowerCase().split(/\s+/);
    for (const row of rows) {
      const asked = verdict === "all" || row.querySelector(".badge").textContent === verdict;
      row.hidden = !asked || !words.every((word) => row.textContent.toLowerCase().includes(word));
    }
    for (const source of ledger.children) {
      source.hidden = rows.length > 0 && !source.querySelector("tbody tr:not([hidden])");
      if (verdict !== "all" || field.value) source.open = true;
    }
    for (const tile of tiles) tile.firstChild.setAttribute("aria-pressed", tile.firstChild.firstChild.textContent === verdict);
    count.textContent = ` ${rows.filter((row) => !row.hidden).length} of ${rows.length} claims.`;
    say(count.textContent.trim());
  };
  const choose = (name) => { verdict = name; filter(); };
  for (const item of tiles) {
    const button = make("button"), name = item.firstChild.textContent;
    button.append(...item.childNodes);
    button.addEventListener("click", () => choose(verdict === name ? "all" : name));
    item.append(button);
  }
  label.append("Only claims with ", field);
  field.addEventListener("input", filter);
  ledger.before(label, count);
  if (ledger.parentNode) filter();

  const reveal = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    if (target.hidden) { field.value = ""; choose("all"); }
    for (let one = target; one; one = one.parentElement) if (one.tagName === "DETAILS") one.open = true;
    for (const box of all(".scroll")) fit(box); // as cards, tables are higher
    // A folded table begins with its summary, which has its title.
    (target.tagName === "TABLE" && target.closest("details") || target).scrollIntoView();
    if (target.tagName === "DETAILS") target.querySelector("summary").focus({ preventScroll: true });
  };
  addEventListener("hashchange", reveal);
  // Paper cannot unfold our claims, which the answers cite.
  addEventListener("beforeprint", () => { document.getElementById("claim_O01")?.closest("#ledger > details").setAttribute("open", ""); });
  addEventListener("load", reveal); // pictures have their heights then

  for (const box of all(".scroll")) {
    const table = box.firstElementChild, shown = all("tbody tr", table);
    if (shown.length < 15 || ledger.contains(table) || table.className === "matrix") continue;
    const label = make("label", { className: "filter", textContent: "Only rows with " }), field = make("input", { type: "search" });
    field.addEventListener("input", () => {
      const words = field.value.toLowerCase().split(/\s+/);
      for (const row of shown) row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
      say(`${shown.filter((row) => !row.hidden).length} of ${shown.length} rows.`);
    });
    label.append(field);
    box.before(label);
  }

  // The fewest columns of words, from the left, that tell the rows of a table apart: four at most.
  const heads = (table) => {
    const headers = [...table.tHead.rows[0].cells], rows = [...table.tBodies[0].rows], chosen = [];
    const kinds = (columns) => new Set(rows.map((row) => columns.map((at) => row.cells[at].textContent).join("\n"))).size;
    headers.forEach((header, at) => {
      const told = chosen.length ? kinds(chosen) : 1;
      if (header.classList.contains("number") || chosen.length > 3 || told === rows.length) return;
      if (kinds([...chosen, at]) > told) chosen.push(at);
    });
    return chosen.length ? chosen : [0];
  };

  const widths = new WeakMap();
  const fit = (box) => {
    if (!box.clientWidth || widths.get(box) === box.parentElement.clientWidth) return;
    widths.set(box, box.parentElement.clientWidth);
    const table = box.firstElementChild;
    box.classList.remove("cards");
    const wide = table.offsetWidth > box.clientWidth;
    if (wide && !box.dataset.named) {
      box.dataset.named = true;
      const names = [...table.tHead.rows[0].cells].map((header) => header.textContent.trim()), above = heads(table);
      for (const row of all("tbody tr, tfoot tr", table)) [...row.cells].forEach((cell, index) => {
        cell.dataset.name = names[index];
        cell.classList.toggle("head", above.includes(index));
      });
    }
    box.classList.toggle("cards", wide);
    box.classList.add("fits");
    box.tabIndex = -1;
  };
  const size = new ResizeObserver((seen) => requestAnimationFrame(() => { for (const { target } of seen) fit(target); }));
  for (const box of all(".scroll")) size.observe(box);
  document.addEventListener("toggle", ({ target }) => { // what is unfolded within a row may widen the table
    const box = target.closest("td") && target.closest(".scroll:not(.cards)");
    if (!box) return;
    const row = target.closest("tr"), top = row.getBoundingClientRect().top;
    widths.delete(box);
    fit(box);
    scrollBy(0, row.getBoundingClientRect().top - top);
  }, true);
})();
