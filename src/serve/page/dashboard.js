/* dashboard.js: fills the page from /status, and with the admin key from /admin and /metrics.
 * J1 what the server says is put into the page as text, never as markup.
 * J2 the key is in a variable of this script alone.
 * J3 an action that finds the key missing asks for it and then goes on: nothing is pressed twice.
 * J4 a figure that is not known is shown as a dash. */
"use strict";

const EVERY = 2000;           /* ms between two looks */
const POINTS = 150;           /* looks that are kept: five minutes */
const WINDOW = 30;            /* looks of a quantile: one minute */
const VARIANTS = ["baseline", "candidate"];
const NAMES = { baseline: "Baseline", candidate: "Candidate" };
const SVG = "http://www.w3.org/2000/svg";

let key = null;               /* J2 */
let access = null;            /* /status's "admin": key, open, closed */
let status_ = null;           /* the last /admin/status */
let gates = null, measured = null, auditSeen = null, modelsSeen = null; /* of /admin */
let stages = [0, 1, 5, 20, 100], touched = false;
let samples = [];             /* of /metrics, the newest last */

const $ = (id) => document.getElementById(id);

/* ---- words ---- */

const DASH = "–";
const known = (x) => typeof x === "number" && Number.isFinite(x);

function digits(x, n) {
  return Number(x.toPrecision(n)).toLocaleString("en", { maximumSignificantDigits: n });
}

function seconds(x) {
  if (!known(x)) return DASH;
  if (x < 0.001) return digits(x * 1e6, 3) + " µs";
  if (x < 1) return digits(x * 1e3, 3) + " ms";
  return digits(x, 3) + " s";
}

function duration(x) {
  if (!known(x)) return DASH;
  const s = Math.floor(x), parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const at = Math.max(0, parts.findIndex(([size]) => s >= size));
  return (s < 1 ? [[0, "s"]] : parts.slice(at, at + 2).map(([size, name], i) =>
    [i === 0 ? Math.floor(s / size) : Math.floor(s % parts[at][0] / size), name]))
    .map(([n, name]) => n + " " + name).join(" ");
}

function bytes(x) {
  if (!known(x)) return DASH;
  const names = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (x >= 1024 && i < names.length - 1) x /= 1024, i++;
  return digits(x, 3) + " " + names[i];
}

const percent = (x) => known(x) ? digits(x, 3) + " %" : DASH;
const ratio = (x) => known(x) ? percent(x * 100) : DASH;
const words = (x) => String(x).replaceAll("_", " ");

/* ---- pieces of the page ---- */

function make(name, attributes, ...children) { /* J1 */
  const svg = ["svg", "rect", "line", "polyline", "text"].includes(name);
  const e = svg ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [k, v] of Object.entries(attributes ?? {})) e.setAttribute(k, v);
  e.append(...children);
  return e;
}

function put(e, text) {
  if (e.textContent !== text) e.textContent = text;
}

/* Terms and values; an element stays while its term does, so that a selection does. */
function tiles(list, rows) {
  const terms = rows.map(([term]) => term).join("\n");
  if (list.dataset.terms !== terms) {
    list.dataset.terms = terms;
    list.replaceChildren(...rows.map(([term]) =>
      make("div", {}, make("dt", {}, term), make("dd", {}, make("span"), make("small")))));
  }
  rows.forEach(([, value, small, mark], i) => {
    const dd = list.children[i].lastChild;
    put(dd.firstChild, value);
    dd.firstChild.className = mark ?? "";
    put(dd.lastChild, small ?? "");
  });
}

let silence = 0;

function say(text) {
  put($("notice"), text);
  clearTimeout(silence);
  silence = setTimeout(() => put($("notice"), ""), 15000);
}

function fail(text) {
  $("error").hidden = text === null;
  put($("error"), text ?? "");
}

/* ---- the server ---- */

class Refused extends Error {
  constructor(code, text) {
    super(text);
    this.code = code;
  }
}

async function call(method, path, body) {
  const headers = {};
  if (key !== null) headers.authorization = "Bearer " + key;
  if (body !== undefined) headers["content-type"] = "application/json";
  let answer;
  try {
    answer = await fetch(new URL(path, document.baseURI), {
      method, headers, body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store", credentials: "omit", redirect: "error",
    });
  } catch {
    throw new Refused(0, "The server does not answer.");
  }
  const text = await answer.text();
  if (answer.ok) return path === "metrics" ? text : JSON.parse(text);
  let reason = "The server answers " + answer.status + ".";
  try {
    reason = JSON.parse(text).error.message;
  } catch { /* a proxy's page: the status says enough */ }
  throw new Refused(answer.status, reason);
}

/* ---- the key ---- */

/* The key, typed in; false: it was not. */
function askForKey(why) {
  const dialog = $("key");
  put($("key-text"), why);
  $("key-input").value = "";
  return new Promise((resolve) => {
    dialog.onclose = () => {
      const typed = dialog.returnValue === "use" ? $("key-input").value.trim() : "";
      $("key-input").value = "";
      if (typed !== "") key = typed;
      resolve(typed !== "");
    };
    dialog.returnValue = "";
    if (!dialog.open) dialog.showModal();
    $("key-input").focus();
  });
}

/* J3: does it, asking for the key as often as it is not the right one. */
async function perform(action) {
  let why = "This needs a key of the server's admin key file.";
  for (;;) {
    try {
      if (key === null && access === "key") throw new Refused(401, why);
      const answer = await action();
      fail(null);
      return answer;
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      if (error.code !== 401) {
        fail(error.message);
        return undefined;
      }
      if (key !== null) why = "That key is not known here.";
      key = null;
      if (!await askForKey(why)) return undefined;
    }
  }
}

/* ---- health ---- */

function showHealth(s) {
  const dead = s.alive === false;
  const name = dead ? "stalled" : s.state;
  $("state").className = "state " + (dead ? "bad" : s.state === "ready" ? "good" : "");
  put($("state"), name);
  put($("model"), s.model ?? "");
  document.title = (s.model ? s.model + " · " : "") + "zerope";
  const rows = [
    ["State", name, dead ? "no step for a minute" : "", dead ? "bad" : ""],
    ["Uptime", duration(s.uptime_seconds), "version " + s.version],
    ["Model", s.model ?? DASH, ""],
    ["Memory", bytes(s.resident_bytes), "resident"],
    ["Heartbeat", s.busy ? seconds(s.heartbeat_seconds) : "idle",
      s.busy ? "since the last step" : "nothing to compute"],
  ];
  const full = status_;
  if (full) {
    const b = full.models.baseline, pages = full.scheduler.baseline;
    rows[2][2] = b ? b.arch + ", " + b.n_layer + " layers, context " + b.n_ctx : "";
    if (pages) rows[3][2] = "resident; cache " +
      ratio((pages.kv_pages_used + pages.kv_pages_kept) / pages.kv_pages) + " of " +
      bytes(b.kv_bytes);
    rows.push(["Requests", String(full.requests.under_way), full.scheduler.waiting + " waiting"],
      ["Completed", String(full.requests.completed),
        full.requests.failed + " failed, " + full.requests.cancelled + " cancelled"]);
  }
  tiles($("health"), rows);
}

/* ---- canary ---- */

const share = () => status_?.rollout.canary.share_percent ?? null;

function showShare() {
  const wanted = stages[$("share").valueAsNumber];
  put($("share-text"), percent(wanted));
  $("share").setAttribute("aria-valuetext", percent(wanted));
  const can = status_ === null || status_.models.candidate !== null;
  $("set").disabled = !can || wanted === share();
  for (const id of ["share", "hold", "resume", "roll-back"]) $(id).disabled = !can;
}

/* The stage that is not above the share. */
function stageOf(x) {
  let at = 0;
  stages.forEach((stage, i) => { if (stage <= x) at = i; });
  return at;
}

function showStages(list) {
  if (list.join() === stages.join() && $("stages").childElementCount) return;
  stages = list;
  $("share").max = String(stages.length - 1);
  $("stages").replaceChildren(...stages.map((x) => make("span", {}, percent(x))));
  $("share-stages").replaceChildren(...stages.map((_, i) => make("option", { value: i })));
}

const RULES = {
  seconds: "Seconds in this stage", requests: "Requests of the candidate",
  baseline_requests: "Requests of the baseline", error_rise: "Rise of errors",
  loop_rise: "Rise of loops", prompt_pace_p95_ratio: "Time for a prompt token, p95, ratio",
  token_pace_p90_ratio: "Time for a token, p90, ratio",
  top1_mean_shift: "Shift of the top probability's mean",
  top1_std_shift: "Shift of its spread",
};

function showCanary() {
  const c = status_.rollout.canary, b = status_.rollout.breaker, m = status_.models;
  showStages([0, ...c.stages_percent.filter((x) => x > 0)]);
  if (!touched) $("share").value = String(stageOf(c.share_percent));
  const trips = Object.entries(b.trips).filter(([, n]) => n > 0)
    .map(([cause, n]) => n + " × " + words(cause)).join(", ");
  const opens = b.state === "closed" ? "" : b.retry_seconds === null ? "until it is closed"
    : "tries again in " + duration(b.retry_seconds);
  tiles($("canary-tiles"), [
    ["State", words(c.state), c.last?.why ?? "", c.state === "rolled_back" ? "bad" : ""],
    ["Candidate gets", percent(c.share_percent), "for " + duration(c.stage_seconds)],
    ["Candidate", m.candidate?.name ?? (m.loading ? "loading" : "none"),
      m.load_error ?? (m.candidate ? m.candidate.requests + " under way" : ""),
      m.load_error ? "bad" : "candidate"],
    ["Breaker", words(b.state), opens || trips, b.state === "closed" ? "good" : "bad"],
  ]);
  $("close-breaker").hidden = b.state === "closed";
  $("rules-box").hidden = m.candidate === null || c.rules.length === 0;
  $("rules").replaceChildren(...c.rules.map((r) =>
    make("li", r.met ? { class: "met" } : {}, make("span", {}, RULES[r.name] ?? words(r.name)),
      make("span", {}, (known(r.value) ? digits(r.value, 3) : DASH) + " of " + digits(r.limit, 3) +
        (r.met ? " ✓" : "")))));
  showShare();
}

/* What the admin answers: {why, cut}, or null. */
function confirm_(title, text, cuts) {
  const dialog = $("confirm");
  put($("confirm-title"), title);
  put($("confirm-text"), text);
  $("cut-box").hidden = !cuts;
  $("cut").checked = false;
  $("reason").value = "";
  return new Promise((resolve) => {
    dialog.onclose = () => resolve(dialog.returnValue !== "yes" ? null
      : { why: $("reason").value.trim(), cut: $("cut").checked });
    dialog.returnValue = "";
    dialog.showModal();
    $("reason").focus();
  });
}

async function decide(title, text, path, body, done) {
  const answer = await confirm_(title, text, body.action === "roll-back");
  if (answer === null) return;
  const sent = { ...body, why: answer.why };
  if (answer.cut) sent.cut = true;
  const after = await perform(() => call("POST", path, sent));
  touched = false;
  if (after === undefined) {
    if (status_) showCanary();
    return;
  }
  say(done);
  await showAll(after);
}

function decideShare() {
  const wanted = stages[$("share").valueAsNumber], now = share();
  return decide("Give " + percent(wanted) + " of the requests to the candidate?",
    now === null ? "" : "It has " + percent(now) + " now.",
    "admin/canary", { action: "set", percent: wanted },
    "The candidate gets " + percent(wanted) + " of the requests.");
}

/* ---- latency ---- */

const FIGURES = [
  ["First token", "zerope_time_to_first_token_seconds", "first_token_seconds"],
  ["Between tokens", "zerope_inter_token_latency_seconds", "inter_token_seconds"],
  ["Whole answer", "zerope_request_duration_seconds", "request_seconds"],
];
const QUANTILES = [["p50", 0.5], ["p95", 0.95], ["p99", 0.99]];

/* {"baseline zerope_...": [[bound, count], ...]}, lengths added up. */
function readBuckets(text) {
  const all = {}, wanted = new Set(FIGURES.map(([, metric]) => metric + "_bucket"));
  for (const line of text.split("\n")) {
    const [, name, labels, value] = /^(\w+)\{([^}]*)\} (\S+)$/.exec(line) ?? [];
    if (!wanted.has(name)) continue;
    const variant = /variant="(\w+)"/.exec(labels)[1], le = /le="([^"]+)"/.exec(labels)[1];
    const of = all[variant + " " + name.slice(0, -7)] ??= new Map();
    const bound = le === "+Inf" ? Infinity : Number(le);
    of.set(bound, (of.get(bound) ?? 0) + Number(value));
  }
  for (const [name, of] of Object.entries(all)) all[name] = [...of].sort((a, b) => a[0] - b[0]);
  return all;
}

/* Quantile of what came between two looks, linear within a bucket; null: nothing came. */
function quantile(now, before, q) {
  const counts = now.map(([bound, n], i) => [bound, n - (before?.[i]?.[1] ?? 0)]);
  const total = counts.at(-1)[1];
  if (!(total > 0)) return null;
  const rank = q * total;
  let low = 0, below = 0;
  for (const [bound, n] of counts) {
    if (n >= rank && n > below) {
      return bound === Infinity ? low : low + (bound - low) * (rank - below) / (n - below);
    }
    if (bound !== Infinity) low = bound;
    below = n;
  }
  return low;
}

function takeSample(text) {
  const buckets = readBuckets(text), last = samples.at(-1);
  const fewer = last && Object.entries(buckets).some(([name, of]) =>
    (last.buckets[name]?.at(-1)[1] ?? 0) > of.at(-1)[1]);
  if (fewer) samples = []; /* the server began anew */
  const before = samples.at(-WINDOW)?.buckets ?? samples[0]?.buckets;
  const figures = {};
  if (before) {
    for (const [name, of] of Object.entries(buckets)) {
      figures[name] = QUANTILES.map(([, q]) => quantile(of, before[name], q));
    }
  }
  samples.push({ buckets, figures });
  if (samples.length > POINTS) samples.shift();
}

/* Lines of one figure, broken where there is nothing. */
function lines(name, top) {
  const shown = Math.max(WINDOW, samples.length);
  return QUANTILES.flatMap(([label], q) => {
    const runs = [[]];
    samples.forEach((s, i) => {
      const y = s.figures[name]?.[q];
      if (!known(y)) return runs.at(-1).length && runs.push([]);
      const x = 300 * (i + shown - samples.length) / (shown - 1);
      return runs.at(-1).push(x.toFixed(1) + "," + (78 - 74 * y / top).toFixed(1));
    });
    return runs.filter((run) => run.length).map((run) => make("polyline",
      { class: label, points: (run.length > 1 ? run : [run[0], run[0]]).join(" ") }));
  });
}

/* Since the start; of three lengths the one with most. */
function sinceStart(variant, name) {
  const of = status_.latency[variant][name];
  const parts = "count" in of ? [["", of]] : Object.entries(of);
  const [length, best] = parts.reduce((a, b) => b[1].count > a[1].count ? b : a);
  if (best.count === 0) return "Nothing since the start";
  return "Since the start" + (length && ", " + length + " prompts") + ": " +
    QUANTILES.map(([label]) => label + " " + seconds(best[label])).join(" · ");
}

function showLatency() {
  const charts = [];
  for (const variant of VARIANTS) {
    if (status_.models[variant] === null) continue;
    for (const [title, metric, member] of FIGURES) {
      const name = variant + " " + metric;
      const values = samples.flatMap((s) => s.figures[name] ?? []).filter(known);
      const top = values.length ? Math.max(...values) : 1;
      const now = samples.at(-1)?.figures[name] ?? [null, null, null];
      const figures = make("p");
      if (now.every((x) => x === null)) figures.append("Nothing seen in the last minute");
      else QUANTILES.forEach(([label], q) =>
        figures.append(label + " ", make("b", {}, seconds(now[q])), q < 2 ? " · " : ""));
      charts.push(make("div", { class: "chart" },
        make("h3", {}, make("span", { class: variant }, NAMES[variant]), " · " + title), figures,
        make("svg", { viewBox: "0 0 300 80", preserveAspectRatio: "none", class: variant,
          role: "img", "aria-label": NAMES[variant] + ", " + title + ": " + figures.textContent },
        make("line", { class: "grid", x1: 0, x2: 300, y1: 79, y2: 79 }),
        make("line", { class: "grid", x1: 0, x2: 300, y1: 4, y2: 4 }), ...lines(name, top)),
        make("p", { class: "top" }, values.length ? "up to " + seconds(top) + " · " +
          duration(Math.max(WINDOW, samples.length) * EVERY / 1000) : ""),
        make("p", {}, sinceStart(variant, member))));
    }
  }
  $("latency").replaceChildren(...charts);
}

/* ---- maps ---- */

/* Width of each of n maps: beside each other where they fit. */
function mapWidth(host, n) {
  const all = host.clientWidth, each = (all - 36 * (n - 1)) / n;
  return Math.max(200, Math.floor(Math.min(640, each < 230 ? all : each)));
}

/* A grid of cells that mouse and arrow keys read. of: title, variant, width, rows, cols,
 * shade(r, c) in 0..1, text(r, c), rowName(r), colName(c) or "". */
function map(of) {
  const left = 30, top = 18, width = of.width, cell = (width - left) / of.cols;
  const height = Math.max(7, Math.min(16, 420 / of.rows)), every = Math.ceil(14 / height);
  const svg = make("svg", { width, height: top + of.rows * height + 2, class: of.variant,
    tabindex: 0, role: "img", "aria-label": of.title + ". " + of.summary });
  const reading = make("p", { class: "reading", "aria-live": "polite" }, of.summary);
  const cursor = make("rect", { class: "cursor", width: cell, height, visibility: "hidden" });
  for (let r = 0; r < of.rows; r++) {
    if (r % every === 0) {
      svg.append(make("text", { x: left - 6, y: top + r * height + height / 2 + 4,
        "text-anchor": "end" }, of.rowName(r)));
    }
    for (let c = 0; c < of.cols; c++) {
      const box = { x: left + c * cell + .5, y: top + r * height + .5,
        width: Math.max(.5, cell - 1), height: Math.max(.5, height - 1), rx: 1 };
      svg.append(make("rect", { ...box, class: "track" }),
        make("rect", { ...box, class: "cell", "fill-opacity": of.shade(r, c).toFixed(3) }));
    }
  }
  for (let c = 0; c < of.cols; c++) {
    const name = of.colName(c);
    if (name) svg.append(make("text", { x: left + (c + .5) * cell, y: 11, "text-anchor": "middle" },
      name));
  }
  svg.append(cursor);
  let at = null;
  const read = (r, c) => {
    at = [Math.max(0, Math.min(of.rows - 1, r)), Math.max(0, Math.min(of.cols - 1, c))];
    cursor.setAttribute("x", left + at[1] * cell);
    cursor.setAttribute("y", top + at[0] * height);
    cursor.setAttribute("visibility", "visible");
    put(reading, of.text(...at));
  };
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    read(Math.floor((event.clientY - box.top - top) / height),
      Math.floor((event.clientX - box.left - left) / cell));
  });
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1],
      ArrowRight: [0, 1] }[event.key];
    if (!step) return;
    event.preventDefault();
    read(...(at === null ? [0, 0] : [at[0] + step[0], at[1] + step[1]]));
  });
  svg.addEventListener("focus", () => { if (at === null) read(0, 0); });
  return make("div", { class: "map" },
    make("h3", {}, make("span", { class: of.variant }, NAMES[of.variant]), " · " + of.title), svg,
    reading);
}

const there = (m) => VARIANTS.filter((v) => m !== null && m[v] !== null);

function showGates() {
  const width = mapWidth($("gates"), there(gates).length);
  const maps = there(gates).map((variant) => {
    const g = gates[variant];
    const open = g.layers.reduce((sum, l) => sum + l.open_pairs.reduce((a, b) => a + b, 0), 0);
    return map({ variant, width, title: g.name, rows: g.n_layer, cols: g.n_kv,
      summary: open + " of " + g.n_layer * g.n_kv * g.n_pair + " pairs rotate",
      shade: (r, c) => g.n_pair ? g.layers[r].open_pairs[c] / g.n_pair : 0,
      text: (r, c) => {
        const l = g.layers[r], window_ = l.window[c];
        return "Layer " + r + ", head " + c + ": " + l.open_pairs[c] + " of " + g.n_pair +
          " pairs rotate (" + l.kind + ")" +
          (l.open_pairs_half ? ", in mode half " + l.open_pairs_half[c] : "") +
          (window_ ? ", sees " + window_ + " positions" : "");
      },
      rowName: String, colName: (c) => g.n_kv <= 8 || c % 4 === 0 ? String(c) : "" });
  });
  $("gates").replaceChildren(...maps);
}

/* Bars, one a layer, of values in 0..top; null: none. */
function bars(variant, values, top, text) {
  const n = values.length, step = 300 / n;
  return make("div", { class: "bars" },
    make("svg", { viewBox: "0 0 300 46", preserveAspectRatio: "none", class: variant, role: "img",
      "aria-label": NAMES[variant] + ": " + values.map((x, i) => "layer " + i + " " + text(x))
        .join(", ") },
    ...values.flatMap((x, i) => {
      const height = known(x) && top > 0 ? 44 * x / top : 0;
      const wide = { x: i * step + step * .1, width: step * .8 };
      return [make("rect", { ...wide, y: 1, height: 44, class: "track" }),
        make("rect", { ...wide, y: 45 - height, height, class: "cell" })];
    })));
}

/* Of the models that are served now: a swapped one has not been measured. */
const measuredNow = () => there(measured).filter((v) => measured[v].name ===
  status_.models[v]?.name && measured[v].layers.length === status_.models[v].n_layer);

function showBars() {
  $("open-bars").replaceChildren(...there(gates).map((v) => {
    const of = gates[v].layers.map((l) => l.open_pairs.reduce((a, b) => a + b, 0) /
      (gates[v].n_kv * gates[v].n_pair || 1));
    return bars(v, of, 1, ratio);
  }));
  const shown = measuredNow();
  const top = Math.max(...shown.flatMap((v) => measured[v].layers.map((l) => l.strength ?? 0)), 0);
  const text = (x) => known(x) ? digits(x, 3) : DASH;
  $("strength-bars").replaceChildren(...shown.map((v) =>
    bars(v, measured[v].layers.map((l) => l.strength), top, text)));
  if (shown.length === 0) {
    $("strength-bars").append(make("p", { class: "note" },
      "Not measured yet: Measure, under Attention by distance."));
  }
}

function showRatios() {
  const rows = [
    ["ECR", "layers without positions",
      (m) => ratio(m.layer_zeroed / m.n_layer) + " (" + m.layer_zeroed + " of " + m.n_layer + ")"],
    ["PES", "positional strength of queries",
      (m) => known(m.positional_strength) ? digits(m.positional_strength, 3) : "not measured"],
    ["PSR", "rotations skipped since the start",
      (m, v) => known(status_.scheduler[v]?.skip_ratio) ? ratio(status_.scheduler[v].skip_ratio)
        : "nothing computed yet"],
    ["Open gates", "of all", (m) => m.gates ? (m.gates - m.gates_closed) + " of " + m.gates : DASH],
  ];
  $("ratios").tBodies[0].replaceChildren(...rows.map(([name, small, value]) =>
    make("tr", {}, make("th", { scope: "row" }, name, make("small", {}, small)),
      ...VARIANTS.map((v) => make("td", {}, status_.models[v] ? value(status_.models[v], v)
        : DASH)))));
}

/* ---- attention by distance ---- */

function showDistance() {
  const host = $("distance");
  if (measured === null) {
    host.replaceChildren();
    put($("distance-note"), "Nothing measured yet.");
    return;
  }
  const which = $("distance-shows").value, buckets = measured.buckets;
  const shown = there(measured), width = mapWidth(host, shown.length);
  const row = (l) => [l.first, ...l[which]];
  const all = shown.flatMap((v) => measured[v].layers.flatMap(row)).filter((x) => x > 0);
  const low = Math.log(Math.min(...all)), high = Math.log(Math.max(...all));
  const names = ["first", ...buckets.map((b) => String(b.from))];
  const where = ["the first token", ...buckets.map((b) => b.from === b.to
    ? (b.from === 0 ? "itself" : b.from + " back") : b.from + " to " + b.to + " back")];
  host.replaceChildren(...shown.map((variant) => {
    const m = measured[variant], values = m.layers.map(row);
    return map({ variant, width, title: m.name + ", mode " + m.mode, rows: m.layers.length,
      cols: names.length, summary: "Positional strength " +
        (known(m.strength) ? digits(m.strength, 3) : "not defined"),
      shade: (r, c) => values[r][c] > 0 && high > low
        ? Math.max(.02, (Math.log(values[r][c]) - low) / (high - low)) : 0,
      text: (r, c) => "Layer " + r + ", " + where[c] + ": " + (which === "share" || c === 0
        ? ratio(values[r][c]) + " of the attention"
        : digits(values[r][c], 3) + " a key"),
      rowName: String, colName: (c) => names[c] });
  }));
  put($("distance-note"), "The " + measured.text + " text, " + measured.tokens + " of its " +
    measured.text_tokens + " tokens, in " + seconds(measured.seconds) + ", " +
    new Date(measured.unix_seconds * 1000).toLocaleString() + ". Shades are logarithmic, from " +
    digits(Math.exp(low), 2) + " to " + digits(Math.exp(high), 2) + ", and the same in all maps.");
}

async function measure() {
  const text = $("distance-text").value, body = { tokens: Number($("distance-tokens").value) };
  if (text.trim() !== "") body.text = text;
  $("measure").disabled = true;
  put($("distance-note"), "Measuring; what is served goes on.");
  const answer = await perform(() => call("POST", "admin/distance", body));
  $("measure").disabled = false;
  if (answer !== undefined) {
    measured = answer.measured;
    say("Measured in " + seconds(measured.seconds) + ".");
    await lookAgain();
    showBars();
  }
  showDistance();
}

/* ---- decisions ---- */

function showAudit(all) {
  $("audit").tBodies[0].replaceChildren(...all.slice(-30).reverse().map((l) => {
    const n = l.numbers ?? {};
    const moved = known(n.to_percent)
      ? percent(n.from_percent) + " → " + percent(n.to_percent) : "";
    return make("tr", {}, ...[(l.time ?? DASH).slice(0, 19).replace("T", " "), l.actor,
      words(l.what), l.why ?? "", moved].map((x) => make("td", {}, x)));
  }));
}

/* ---- looking again and again ---- */

/* All that a key opens. */
async function showAll(full) {
  status_ = full;
  for (const e of document.querySelectorAll(".private")) e.hidden = false;
  const models = JSON.stringify(VARIANTS.map((v) =>
    [full.models[v]?.sha256, full.models[v]?.positional_strength]));
  if (models !== modelsSeen) {
    gates = await call("GET", "admin/gates");
    measured = (await call("GET", "admin/distance")).measured;
    modelsSeen = models;
    showGates();
    showDistance();
    showBars();
  }
  if (full.rollout.audit.decisions !== auditSeen) {
    showAudit((await call("GET", "admin/audit")).lines);
    auditSeen = full.rollout.audit.decisions;
  }
  showCanary();
  showRatios();
  showLatency();
}

function showLocked(text) {
  status_ = null;
  modelsSeen = auditSeen = null;
  for (const e of document.querySelectorAll(".private, #rules-box")) e.hidden = true;
  tiles($("canary-tiles"), [["State", DASH, text]]);
  showStages(stages);
  showShare();
}

async function look() {
  const s = await call("GET", "status");
  access = s.admin;
  $("key-button").hidden = access !== "key";
  put($("key-button"), key === null ? "Enter the admin key" : "Forget the key");
  if (access === "closed" || (access === "key" && key === null)) {
    showLocked(access === "key" ? "needs the admin key"
      : "/admin is closed: --admin-key-file or --admin-open opens it");
  } else {
    takeSample(await call("GET", "metrics"));
    const full = await call("GET", "admin/status");
    await showAll(full);
  }
  showHealth(s);
}

let broken = false; /* the last look found no server, or a door that is closed */

async function lookAgain() {
  try {
    await look();
    if (broken) fail(null);
    broken = false;
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    broken = true;
    if (error.code === 401) {
      key = null;
      showLocked("needs the admin key");
      fail("That key is not known here.");
    } else if (error.code === 0) {
      $("state").className = "state bad";
      put($("state"), "no answer");
      fail("The server does not answer. Trying again every two seconds.");
    } else {
      if (error.code === 403) showLocked("not from here");
      fail(error.message);
    }
  }
}

async function keepLooking() {
  for (;;) {
    if (!document.hidden) await lookAgain();
    await new Promise((resolve) => { setTimeout(resolve, EVERY); });
  }
}

/* ---- what can be pressed ---- */

$("share").addEventListener("input", () => {
  touched = true;
  showShare();
});
$("set").addEventListener("click", decideShare);
$("hold").addEventListener("click", () => decide("Hold the share where it is?",
  "No rule changes it until it is resumed.", "admin/canary", { action: "hold" },
  "The share is held."));
$("resume").addEventListener("click", () => decide("Let the rules go on?",
  "The share grows by rule again.", "admin/canary", { action: "resume" }, "The rules go on."));
$("roll-back").addEventListener("click", () => decide("Roll the candidate back?",
  "All new requests go to the baseline.", "admin/canary", { action: "roll-back" },
  "The candidate is rolled back."));
$("close-breaker").addEventListener("click", () => decide("Close the breaker?",
  "The candidate gets its share of requests again.", "admin/breaker", { action: "close" },
  "The breaker is closed."));
$("distance-form").addEventListener("submit", (event) => {
  event.preventDefault();
  measure();
});
$("distance-shows").addEventListener("change", showDistance);
$("key-button").addEventListener("click", async () => {
  if (key !== null) {
    key = null;
    samples = [];
    await lookAgain();
    return;
  }
  const full = await perform(() => call("GET", "admin/status"));
  if (full !== undefined) await lookAgain();
});
for (const [dialog, form, no, value] of [["confirm", "confirm-form", "confirm-no", "yes"],
  ["key", "key-form", "key-no", "use"]]) {
  $(form).addEventListener("submit", (event) => {
    event.preventDefault();
    if ($(form).reportValidity()) $(dialog).close(value);
  });
  $(no).addEventListener("click", () => $(dialog).close(""));
}
window.addEventListener("resize", () => {
  if (status_ === null || gates === null) return;
  showGates();
  showDistance();
});
keepLooking();
