// The API's types as this page names them, taken from the OpenAPI document.

import type { components } from "./openapi";

type Schemas = components["schemas"];

export type Status = Schemas["ControllerStatus"];
export type Place = Schemas["NetworkPlace"];
export type Switch = Schemas["NetworkSwitch"];
export type Link = Schemas["NetworkLink"] & { jitter_milliseconds?: number };
export type Host = Schemas["NetworkHost"];
export type Hop = Schemas["NetworkHop"];
export type BusEvent = Schemas["Event"];

export type Match = Record<string, string | number>;
export interface Class { name: string; min_rate: number; max_rate: number; latency?: number; priority: number; flows: Match[]; state?: string; paths?: { hops: Hop[] }[] }
export interface Queue { switch: string; port: number; bytes: number; packets: number; drops: number; bits_per_second: number }
export interface ClassStats { queues: Queue[] }
export interface Critical { name: string; rate: number; match: Match }
export interface Placement { id: string; name: string; accepted: boolean; reason?: string; rate: number; hops: Hop[]; match: Match }
