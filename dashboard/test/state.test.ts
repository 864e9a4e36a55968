import { expect, test, vi } from "vitest";

import { Problem } from "../src/api/problem";
import { matchOf, matchWords } from "../src/qos/match";
import { Resource } from "../src/state/resource";
import { Session } from "../src/state/session";

test("of many refreshes during a fetch one is kept, and the last answer counts", async () => {
  const answers: ((v: number) => void)[] = [];
  const r = new Resource(0, () => new Promise<number>((resolve) => answers.push(resolve)), 1000, ["network."], () => undefined);
  const first = r.refresh();
  void r.refresh();
  void r.refresh();
  expect(answers).toHaveLength(1);
  answers[0]!(1);
  await vi.waitFor(() => expect(answers).toHaveLength(2));
  answers[1]!(2);
  await first;
  expect(r.value).toBe(2);
  expect(answers).toHaveLength(2);
});

test("a fetch that fails keeps the last value and says why", async () => {
  let fail = false;
  const r = new Resource(0, () => (fail ? Promise.reject(new Problem(503, "no")) : Promise.resolve(5)), 1000, [], () => undefined);
  await r.refresh();
  fail = true;
  await r.refresh();
  expect(r.value).toBe(5);
  expect(r.problem?.message).toBe("no");
  fail = false;
  await r.refresh();
  expect(r.problem).toBeUndefined();
});

class Memory {
  private readonly items = new Map<string, string>();
  getItem = (k: string): string | null => this.items.get(k) ?? null;
  setItem = (k: string, v: string): void => void this.items.set(k, v);
  removeItem = (k: string): void => void this.items.delete(k);
}

test("the session asks once, and forgets a token that was refused", () => {
  const session = new Session(new Memory() as unknown as Storage);
  const changed = vi.fn();
  session.subscribe(changed);
  session.refused();
  session.refused();
  expect(changed).toHaveBeenCalledTimes(1);
  expect(session.wanted()).toBe(true);
  session.logIn(" word \n");
  expect([session.token(), session.wanted()]).toEqual(["word", false]);
  session.refused();
  expect([session.token(), session.wanted()]).toEqual(["", true]);
});

test("a description has the conditions with a value, and no others", () => {
  const match = matchOf([{ key: 1, field: "ipv4_src", value: " 10.0.0.1 " }, { key: 2, field: "udp_dst", value: "" }]);
  expect(match).toEqual({ ipv4_src: "10.0.0.1" });
  expect(matchWords({ ipv4_src: "10.0.0.1", udp_dst: 5201 })).toBe("ipv4_src 10.0.0.1, udp_dst 5201");
});
