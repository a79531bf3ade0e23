// search.js - finds pages and sections by words. The index comes when somebody first asks for it.
"use strict";
{
  const MOST = 20;
  const base = document.currentScript.dataset.base + "/";
  const asked = document.getElementById("asked");
  const found = document.getElementById("found");
  let index = null;

  const load = async () => {
    const docs = (await (await fetch(base + "search/search_index.json")).json()).docs;
    return docs.map(d => ({...d, words: (d.title + "\n" + d.text).toLowerCase()}));
  };

  // A word in a title counts more than any number of them in a text.
  const score = (d, words) => words.every(w => d.words.includes(w))
    ? words.filter(w => d.title.toLowerCase().includes(w)).length + 1 / d.words.length : -1;

  const item = (url, text) => {
    const li = document.createElement("li");
    const a = document.createElement("a");
    a.href = url;
    a.textContent = text;
    li.append(a);
    return li;
  };

  const search = async () => {
    const words = asked.value.toLowerCase().split(/\s+/).filter(w => w.length > 1);
    const text = asked.value;
    index ??= load();
    const docs = await index;
    if (asked.value !== text)
      return; // somebody went on typing
    const hits = words.length ? docs.map(d => [score(d, words), d]).filter(([s]) => s >= 0) : [];
    hits.sort(([a], [b]) => b - a);
    found.replaceChildren(...hits.slice(0, MOST).map(([, d]) => item(base + d.location, d.title)));
    if (words.length && !hits.length)
      found.replaceChildren(Object.assign(document.createElement("li"), {textContent: "nothing"}));
  };

  asked.addEventListener("input", () => search().catch(e => {
    index = null;
    found.replaceChildren(Object.assign(document.createElement("li"), {textContent: String(e)}));
  }));
}
