import { api, attempt, byId, duration, poll, put } from "./common.js";

// A page refreshes after restFactor times the duration of a search, so that an open
// page costs little. longest is the maximum of this interval, in milliseconds.
const restFactor = 200, longest = 300000;
const pageSize = 50; // rows that a page shows at first, and adds each time

// list shows a list of the API. An answer may contain only a part of the list, so
// list continues the search until it has found a page of rows, or everything was
// visited. It repeats the first request after each interval, unless the list needed
// further requests. The interval is longer if the node needed much time for the
// request. list returns a function that begins again.
//
// path is the page of the API, and field is the field of its answer with the rows.
// query returns the parameters of the request. list calls show with two arguments:
// the rows that it has found, and whether there may be more.
export function list({ path, field, query, show, milliseconds }) {
  let found = [], cursor = "0", visited = 0, took = 0, extended = false;
  let pause = 0; // time until the next refresh: the last answer determines it
  let search = 0; // number of the search; a search ends when there is a later one

  const add = (answer) => {
    found = found.concat(answer[field]);
    cursor = answer.cursor;
    visited += answer.visited;
    took += answer.took_ms ?? 0;
  };
  const draw = (searching) => {
    const more = cursor !== "0";
    show(found, more);
    byId("more").hidden = !more || searching;
    byId("stop").hidden = !searching;
    const rest = searching ? `searching, ${visited} ${field} visited so far …` : more ? "and there may be more" : "";
    pause = Math.min(longest, restFactor * took);
    const slow = pause > 2 * milliseconds && !extended ? `refreshed every ${duration(pause)}` : "";
    put(byId("count"), [`${found.length} shown`, rest, slow].filter(Boolean).join(", "));
  };
  // fill continues until there are enough rows.
  const fill = async (enough, mine) => {
    try {
      while (found.length < enough && cursor !== "0" && mine === search) {
        extended = true;
        draw(true);
        const answer = await api(path, { ...query(), cursor });
        if (mine === search) add(answer);
      }
    } finally {
      if (mine === search) draw(false);
    }
  };
  const refresh = poll(async () => {
    if (extended) return; // the rows of further requests would be lost
    const mine = ++search;
    const answer = await api(path, query());
    if (mine !== search) return;
    [found, visited, took] = [[], 0, 0];
    add(answer);
    await fill(pageSize, mine);
    return pause;
  }, milliseconds);

  byId("more").addEventListener("click", () => attempt(() => fill(found.length + pageSize, ++search)));
  byId("stop").addEventListener("click", () => {
    search++;
    draw(false);
  });
  return () => {
    search++;
    extended = false;
    refresh();
  };
}
