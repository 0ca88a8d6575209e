"use strict";
// Everything is readable without this file: it sorts, searches, filters, and opens what an address points at.
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const one = (selector, root = document) => root.querySelector(selector);

  // Sorting: each body by itself, so that what has no rank stays below; what has no number stays last.
  const keyOf = (row, column) => {
    const cell = row.cells[column];
    const text = cell.dataset.v ?? (one("a", cell) ?? cell).textContent.trim();
    const number = Number(text);
    return text === "" ? null : Number.isNaN(number) ? text.toLowerCase() : number;
  };
  const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a) < String(b) ? -1 : a === b ? 0 : 1);
  const sort = (heading, order) => {
    const table = heading.closest("table");
    all("th[aria-sort]", table).forEach((sorted) => sorted.removeAttribute("aria-sort"));
    heading.setAttribute("aria-sort", order);
    const sign = order === "ascending" ? 1 : -1;
    for (const body of table.tBodies) {
      const keyed = [...body.rows].map((row) => [keyOf(row, heading.cellIndex), row]);
      keyed.sort(([a], [b]) => (a === null || b === null ? (a === null) - (b === null) : sign * compare(a, b)));
      body.append(...keyed.map(([, row]) => row));
    }
  };
  for (const heading of all("table.sortable thead th")) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    button.addEventListener("click", () => {
      const first = heading.dataset.order;
      const other = first === "ascending" ? "descending" : "ascending";
      sort(heading, heading.getAttribute("aria-sort") === first ? other : first);
      remember();
    });
    heading.append(button);
  }

  // Filters: a row or section is shown if it has the words, and what is chosen; a task has no family, so it stays.
  const form = one(".filters");
  const search = one("#search");
  const selects = all("select", form);
  const panels = all(".panel");
  const units = all(".board tbody tr, .unit");
  // Names alone, the printed one and that of commands: other words of a line are of families or of other mechanisms.
  // What joins the words of a name is typed as a space, or as it is.
  const plain = (text) => text.toLowerCase().replace(/[_-]/g, " ").trim();
  const namesOf = (unit) => [one("th a, .title", unit).textContent, unit.dataset.name ?? ""].map(plain);
  const names = new Map(units.map((unit) => [unit, namesOf(unit)]));
  const apply = () => {
    const wanted = plain(search.value);
    const chosen = selects.map((select) => [select.dataset.facet, select.value]).filter(([, value]) => value);
    for (const unit of units) {
      const isChosen = chosen.every(([facet, value]) => !(facet in unit.dataset) || unit.dataset[facet] === value);
      unit.hidden = !isChosen || !names.get(unit).some((name) => name.includes(wanted));
    }
    const category = chosen.find(([facet]) => facet === "category")?.[1] ?? "";
    for (const panel of panels) {
      panel.hidden = category !== "" && panel.dataset.panel !== category;
      if (category && !panel.hidden) panel.open = true;
    }
    one(".by-category").hidden = category !== "";
    // What was found stands further down, out of sight: each count leads there, to the section itself if it is one.
    const countOf = (id) => {
      const shown = all(`#${id} .unit`).filter((unit) => !unit.hidden);
      const link = document.createElement("a");
      link.href = `#${shown.length === 1 ? shown[0].id : id}`;
      link.textContent = `${id}: ${shown.length}`;
      return link;
    };
    remember();
    one("#found").replaceChildren(...(wanted || chosen.length ? [countOf("mechanisms"), ", ", countOf("tasks")] : []));
  };
  form.hidden = false;
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(apply));

  // Addresses: what is chosen, searched and sorted is kept in them; or they open a section, and what holds it.
  const headings = all(".board:first-of-type thead th", one(".panel"));
  const remember = () => {
    const place = headings.findIndex((heading) => heading.hasAttribute("aria-sort"));
    const order = place < 0 ? "" : headings[place].getAttribute("aria-sort");
    const isSorted = place >= 0 && place !== bestFirst;
    const sorted = isSorted || order === "ascending" ? [["sort", place], ["order", order]] : [];
    const kept = [["search", search.value], ...selects.map((select) => [select.dataset.facet, select.value])];
    const state = new URLSearchParams([...kept.filter(([, value]) => value), ...sorted]);
    if (String(state) || location.hash.includes("=")) history.replaceState(null, "", `#${state}`);
  };
  const bestFirst = headings.findIndex((heading) => heading.hasAttribute("aria-sort"));
  const restore = () => {
    const state = new URLSearchParams(location.hash.slice(1));
    search.value = state.get("search") ?? "";
    for (const select of selects) select.value = state.get(select.dataset.facet) ?? "";
    const heading = headings[Number(state.get("sort") ?? bestFirst)];
    if (heading) sort(heading, state.get("order") === "ascending" ? "ascending" : "descending");
    apply();
  };
  const reveal = () => {
    if (location.hash.includes("=")) return restore();
    let id;
    try { id = decodeURIComponent(location.hash.slice(1)); } catch { return; }
    const target = document.getElementById(id);
    if (!target) return;
    for (let part = target; part; part = part.parentElement) {
      if (part.localName === "details") part.open = true;
      if (part.hidden && part !== form) part.hidden = false;
    }
    target.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  reveal();
})();
