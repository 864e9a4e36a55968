import { expect, test } from "vitest";

import { asProblem, assign, Problem, problemOf } from "../src/api/problem";

const known = ["name", "min_rate", "flows", "flows[0]", "flows[0].ipv4_src", "match", "match.udp_dst"];

test.each([
  ["body.min_rate", "min_rate"],
  ["body.flows[0].ipv4_src", "flows[0].ipv4_src"],
  ["body.flows.0.ipv4_src", "flows[0].ipv4_src"],
  ["body.flows[0].eth_src", "flows[0]"],
  ["body.flows[3].eth_src", "flows"],
  ["body.match.udp_dst", "match.udp_dst"],
  ["path.name", "name"],
])("an error at %s belongs to %s", (location, field) => {
  const { fields, rest } = assign(new Problem(422, "refused", [{ location, message: "want another" }]), known);
  expect([...fields]).toEqual([[field, ["want another"]]]);
  expect(rest).toEqual([]);
});

test("what belongs to no field is said of the whole form", () => {
  expect(assign(new Problem(409, "exists already"), known).rest).toEqual(["exists already"]);
  expect(assign(new Problem(422, "refused", [{ location: "body", message: "too large" }]), known).rest).toEqual(["body: too large"]);
  expect(assign(new Problem(409, "no daemon listens", [{ location: "path.id", message: "no daemon listens" }]), known).rest).toEqual(["no daemon listens"]);
  expect(assign(undefined, known)).toEqual({ fields: new Map(), rest: [] });
});

test("several errors of one field are all kept", () => {
  const at = (message: string) => ({ location: "body.name", message });
  expect(assign(new Problem(422, "refused", [at("too long"), at("no spaces")]), known).fields.get("name")).toEqual(["too long", "no spaces"]);
});

test("a problem is read from an answer, also from one that is none", async () => {
  const good = await problemOf(new Response(JSON.stringify({ detail: "no room", errors: [{ location: "body.rate" }] }), { status: 409 }));
  expect(good).toMatchObject({ status: 409, message: "no room", details: [{ location: "body.rate" }] });
  expect(await problemOf(new Response("<html>", { status: 502, statusText: "Bad Gateway" }))).toMatchObject({ status: 502, message: "502 Bad Gateway", details: [] });
});

test("no answer at all is a problem too", () => {
  expect(asProblem(new TypeError("fetch failed"))).toMatchObject({ status: 0, message: "the controller cannot be reached" });
  expect(asProblem(new DOMException("late", "TimeoutError")).message).toContain("in time");
});
