// The frame around the pages: which one is shown, the theme, the keyboard.
import { html, render, useEffect, useState } from "/vendor/preact-htm.module.js";
import { Cluster } from "/pages/cluster.js";
import { Stream } from "/pages/stream.js";
import { Graph } from "/pages/graph.js";
import { Actors, Groups, Jobs, Objects, Tasks } from "/pages/listings.js";
import { Errors, Logs } from "/pages/words.js";
import { Profile } from "/pages/profile.js";
import { Data, Rl, Serve, Train, Tune } from "/pages/boards.js";

const PAGES = [
  ["", "Cluster", Cluster], ["stream", "Task stream", Stream], ["graph", "Task graph", Graph],
  ["tasks", "Tasks", Tasks], ["actors", "Actors", Actors], ["objects", "Objects", Objects], ["jobs", "Jobs", Jobs],
  ["groups", "Placement groups", Groups], ["logs", "Logs", Logs], ["errors", "Errors", Errors],
  ["profile", "Profile", Profile], ["tune", "Tuning", Tune], ["rl", "RL", Rl],
  ["train", "Training", Train], ["data", "Data", Data], ["serve", "Serving", Serve],
];

const here = () => location.hash.replace(/^#\/?/, "").split("?")[0];

function useTheme() {
  const preferred = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  const [theme, setTheme] = useState(localStorage.getItem("weft-theme") || preferred);
  document.documentElement.dataset.theme = theme;
  return [theme, () => {
    const next = theme === "dark" ? "light" : "dark";
    localStorage.setItem("weft-theme", next);
    setTheme(next);
  }];
}

function useKeys() {
  useEffect(() => {
    const pressed = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
      if (/^[1-9]$/.test(event.key) && PAGES[event.key - 1]) location.hash = `#/${PAGES[event.key - 1][0]}`;
      if (event.key === "/") {
        const search = document.querySelector("input[type=search]");
        if (search) { search.focus(); event.preventDefault(); }
      }
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
}

function App() {
  const [at, setAt] = useState(here());
  const [theme, toggle] = useTheme();
  useKeys();
  useEffect(() => {
    const moved = () => { setAt(here()); scrollTo(0, 0); document.querySelector("main").focus({ preventScroll: true }); };
    addEventListener("hashchange", moved);
    return () => removeEventListener("hashchange", moved);
  }, []);
  useEffect(() => {
    const link = document.querySelector("nav.pages a[aria-current]");
    if (link) link.parentElement.scrollLeft = link.offsetLeft - link.parentElement.offsetLeft - 60;
  }, [at]);
  const [, title, Page] = PAGES.find(([path]) => path === at) || PAGES[0];
  document.title = `${title} – Weft`;
  return html`
    <a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.querySelector("main").focus(); }}>
      Skip to the page</a>
    <header class="top">
      <strong><img src="/icon.svg" alt="" />Weft</strong>
      <nav class="pages" aria-label="Pages">${PAGES.map(([path, name], index) => html`<a href=${`#/${path}`}
        aria-current=${path === at ? "page" : undefined}
        title=${index < 9 ? `key ${index + 1}` : undefined}>${name}</a>`)}</nav>
      <button type="button" class="outline" onClick=${toggle} aria-label=${`Switch to ${theme === "dark" ? "light" : "dark"}`}>
        ${theme === "dark" ? "☀" : "☾"}</button>
    </header>
    <main tabindex="-1" data-page=${at}><h1>${title}</h1><${Page} key=${`${at}-${theme}`} /></main>`;
}

render(html`<${App} />`, document.body);
