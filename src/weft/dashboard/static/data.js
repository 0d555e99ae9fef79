// Asking the server, and words for numbers. Nothing here touches the page.
import { useEffect, useRef, useState } from "/vendor/preact-htm.module.js";

const GONE = "The session has ended, or its dashboard cannot be reached. Nothing here changes any more.";

export async function ask(path) {
  const answer = await fetch(`/api/${path}`, { credentials: "same-origin" }).catch(() => { throw new Error(GONE); });
  const value = await answer.json().catch(() => ({ error: `status ${answer.status}` }));
  if (!answer.ok) throw new Error(value.error || `status ${answer.status}`);
  return value;
}

// Asks again and again while the page is visible: {value, error}. `onValue` sees each answer once.
export function usePoll(path, everyMs, onValue) {
  const [known, setKnown] = useState({ value: null, error: "" });
  const see = useRef(onValue);
  see.current = onValue;
  useEffect(() => {
    let timer = 0, over = false;
    const look = async () => {
      if (!document.hidden) {
        try {
          const value = await ask(typeof path === "function" ? path() : path);
          if (over) return;
          if (see.current) see.current(value);
          setKnown({ value, error: "" });
        } catch (error) {
          if (!over) setKnown((old) => ({ value: old.value, error: error.message }));
        }
      }
      if (!over) timer = setTimeout(look, everyMs);
    };
    look();
    return () => { over = true; clearTimeout(timer); };
  }, [typeof path === "function" ? "" : path, everyMs]);
  return known;
}

export const bytes = (count) => {
  if (count === null || count === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  for (; count >= 1024 && at < 4; at++) count /= 1024;
  return `${at ? count.toFixed(1) : Math.round(count)} ${units[at]}`;
};
export const seconds = (value) => {
  if (value === null || value === undefined) return "–";
  if (value < 1e-3) return `${(value * 1e6).toFixed(0)} µs`;
  if (value < 1) return `${(value * 1e3).toFixed(1)} ms`;
  return value < 120 ? `${value.toFixed(1)} s` : `${(value / 60).toFixed(1)} min`;
};
export const clock = (time_s) => (time_s ? new Date(time_s * 1000).toLocaleTimeString() : "–");
export const short = (id) => (id ? String(id).slice(0, 8) : "–");
export const number = (value) => (value === null || value === undefined ? "–" : Number(value).toLocaleString());

// Text of users, for people: colours and cursor movements of terminals are for terminals, what cannot be seen is shown.
const ESCAPES = /\x1b(\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|[@-Z\\-_])/g;
const UNSEEN = /[\x00-\x08\x0b-\x1f\x7f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
export const plain = (text, longest = 4000) => {
  const bare = text.replace(ESCAPES, "").replace(UNSEEN, "\ufffd");
  return bare.length > longest ? `${bare.slice(0, longest)}… (${bare.length - longest} more)` : bare;
};

// A colour for a name: the same in every page and session.
export function colour(name) {
  let hash = 2166136261;
  for (const letter of String(name)) hash = Math.imul(hash ^ letter.codePointAt(0), 16777619) >>> 0;
  return `hsl(${hash % 360} 55% ${45 + (hash >> 9) % 15}%)`;
}
