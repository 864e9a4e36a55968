"use strict";
// Renders /openapi.json: operations by tag, parameters, bodies and answers with
// their schemas, and a form that sends a request.

const methods = ["get", "post", "put", "patch", "delete"];
let doc;

function el(tag, attributes, ...children) {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(attributes || {})) {
    if (k.startsWith("on")) e.addEventListener(k.slice(2), v);
    else e.setAttribute(k, v);
  }
  e.append(...children.filter((c) => c !== null && c !== undefined));
  return e;
}

function resolve(schema) {
  let s = schema || {};
  for (let i = 0; s.$ref && i < 16; i++) {
    s = doc.components.schemas[s.$ref.split("/").pop()] || {};
  }
  return s;
}

function typeName(schema) {
  const name = schema.$ref ? schema.$ref.split("/").pop() : "";
  const s = resolve(schema);
  const type = [].concat(s.type || "any").join(" or ");
  if (type.startsWith("array")) return "list of " + typeName(s.items || {});
  return (name || type) + (s.format ? " (" + s.format + ")" : "");
}

function limits(s) {
  const out = [];
  const add = (key, text) => { if (s[key] !== undefined) out.push(text + " " + JSON.stringify(s[key])); };
  if (s.enum) out.push("one of " + s.enum.map((v) => JSON.stringify(v)).join(", "));
  add("minimum", "at least"); add("maximum", "at most"); add("minLength", "length at least");
  add("maxLength", "length at most"); add("minItems", "items at least"); add("maxItems", "items at most");
  add("pattern", "pattern"); add("default", "default");
  if (s.examples && s.examples.length) out.push("for example " + JSON.stringify(s.examples[0]));
  return out.join("; ");
}

function schemaTable(schema, depth, seen) {
  let s = resolve(schema);
  if ([].concat(s.type || []).includes("array")) { schema = s.items || {}; s = resolve(schema); }
  if (!s.properties || depth > 6 || seen.has(schema.$ref)) return null;
  const inner = new Set(seen).add(schema.$ref);
  const table = el("table", {}, el("tr", {}, el("th", {}, "field"), el("th", {}, "type"), el("th", {}, "meaning")));
  for (const [name, p] of Object.entries(s.properties)) {
    const r = resolve(p);
    const required = (s.required || []).includes(name);
    table.append(el("tr", {},
      el("td", {}, el("code", {}, name), required ? "" : el("span", { class: "soft" }, " optional")),
      el("td", {}, typeName(p)),
      el("td", {}, p.description || r.description || "", " ", el("span", { class: "soft" }, limits(r)), schemaTable(p, depth + 1, inner))));
  }
  return table;
}

function example(schema, depth) {
  const s = resolve(schema);
  if (s.examples && s.examples.length) return s.examples[0];
  if (s.default !== undefined) return s.default;
  if (s.enum) return s.enum[0];
  const type = [].concat(s.type || [])[0];
  if (type === "object") {
    const out = {};
    if (depth < 5) for (const [k, p] of Object.entries(s.properties || {})) if (!p.readOnly && (s.required || []).includes(k)) out[k] = example(p, depth + 1);
    return out;
  }
  return { array: [], integer: 0, number: 0, boolean: false }[type] ?? "";
}

function parameters(op) {
  const list = op.parameters || [];
  if (!list.length) return null;
  const table = el("table", {}, el("tr", {}, el("th", {}, "parameter"), el("th", {}, "in"), el("th", {}, "type"), el("th", {}, "meaning")));
  for (const p of list) {
    table.append(el("tr", {},
      el("td", {}, el("code", {}, p.name), p.required ? "" : el("span", { class: "soft" }, " optional")),
      el("td", {}, p.in), el("td", {}, typeName(p.schema || {})),
      el("td", {}, p.description || "", " ", el("span", { class: "soft" }, limits(resolve(p.schema))))));
  }
  return table;
}

function content(holder) {
  return holder && holder.content ? Object.entries(holder.content)[0] : undefined;
}

function answers(op) {
  const box = el("div");
  for (const [status, r] of Object.entries(op.responses || {})) {
    const c = content(r);
    box.append(el("p", {}, el("code", {}, status), " ", r.description || "", c ? el("span", { class: "soft" }, " " + c[0]) : null));
    const table = c && schemaTable(c[1].schema || {}, 0, new Set());
    if (table) box.append(table);
  }
  return box;
}

async function send(path, method, fields, body, out) {
  let url = path;
  const query = new URLSearchParams();
  const headers = {};
  for (const f of fields) {
    if (f.input.value === "") continue;
    if (f.in === "path") url = url.replace("{" + f.name + "}", encodeURIComponent(f.input.value));
    else if (f.in === "query") query.append(f.name, f.input.value);
    else if (f.in === "header") headers[f.name] = f.input.value;
  }
  const token = document.getElementById("token").value.trim();
  if (token) headers.Authorization = "Bearer " + token;
  if (body) headers["Content-Type"] = "application/json";
  if (query.size) url += "?" + query;
  out.textContent = "Waiting for the answer.";
  try {
    const answer = await fetch(url, { method: method.toUpperCase(), headers, body: body ? body.value : undefined });
    const text = await answer.text();
    let pretty = text;
    try { pretty = JSON.stringify(JSON.parse(text), null, 2); } catch { /* not JSON: shown as it is */ }
    out.textContent = answer.status + " " + answer.statusText + "\n" + pretty;
  } catch (e) {
    out.textContent = "No answer: " + e;
  }
}

function tryOut(path, method, op) {
  const responses = Object.values(op.responses || {}).map(content);
  if (responses.some((c) => c && c[0] === "text/event-stream")) {
    return el("p", { class: "soft" }, "A stream: follow it with ", el("code", {}, "curl -N"), " or ", el("code", {}, "sluice events"), ".");
  }
  const fields = (op.parameters || []).map((p) => ({ name: p.name, in: p.in, input: el("input", { "aria-label": p.name }) }));
  const c = content(op.requestBody);
  const body = c ? el("textarea", { "aria-label": "Body" }) : null;
  if (body) body.value = JSON.stringify(example(c[1].schema || {}, 0), null, 2);
  const out = el("pre", { hidden: "" });
  return el("details", {}, el("summary", {}, "Try it"), el("div", {},
    ...fields.map((f) => el("label", {}, f.name, f.input)), body,
    el("button", { type: "button", onclick: () => { out.hidden = false; send(path, method, fields, body, out); } }, "Send"), out));
}

function operation(path, method, op) {
  const c = content(op.requestBody);
  return el("details", { id: op.operationId || method + path },
    el("summary", {}, el("span", { class: "method " + method }, method.toUpperCase()), el("code", {}, path), el("span", { class: "soft" }, op.summary || "")),
    el("div", {}, op.description ? el("p", {}, op.description) : null, parameters(op),
      c ? el("div", {}, el("b", {}, "Body"), schemaTable(c[1].schema || {}, 0, new Set())) : null,
      el("b", {}, "Answers"), answers(op), tryOut(path, method, op)));
}

function show(filter) {
  const byTag = new Map();
  for (const [path, item] of Object.entries(doc.paths || {})) {
    for (const method of methods) {
      const op = item[method];
      if (!op || !(path + " " + (op.summary || "") + " " + (op.tags || [])).toLowerCase().includes(filter)) continue;
      const tag = (op.tags || ["other"])[0];
      if (!byTag.has(tag)) byTag.set(tag, []);
      byTag.get(tag).push([path, method, op]);
    }
  }
  const index = document.getElementById("index"), main = document.getElementById("operations");
  index.replaceChildren(); main.replaceChildren();
  for (const tag of [...byTag.keys()].sort()) {
    index.append(el("h3", {}, tag)); main.append(el("h2", {}, tag));
    for (const [path, method, op] of byTag.get(tag)) {
      const details = operation(path, method, op);
      main.append(details);
      index.append(el("a", { href: "#" + details.id, onclick: () => { details.open = true; } }, op.summary || path));
    }
  }
  const chosen = document.getElementById(location.hash.slice(1));
  if (chosen) { chosen.open = true; chosen.scrollIntoView(); }
}

async function start() {
  try {
    const answer = await fetch("/openapi.json");
    if (!answer.ok) throw new Error(answer.status + " " + answer.statusText);
    doc = await answer.json();
  } catch (e) {
    document.getElementById("operations").textContent = "The document could not be read: " + e.message;
    return;
  }
  document.getElementById("about").textContent = doc.info.title + " " + doc.info.version + ". " + (doc.info.description || "");
  document.getElementById("filter").addEventListener("input", (e) => show(e.target.value.toLowerCase()));
  show("");
}

start();
