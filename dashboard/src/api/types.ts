// The API's types as this page names them, taken from the OpenAPI document.

import type { components } from "./openapi";

type Schemas = components["schemas"];

export type Status = Schemas["ControllerStatus"];
export type Place = Schemas["NetworkPlace"];
export type Switch = Schemas["NetworkSwitch"];
export type Link = Schemas["NetworkLink"];
export type Host = Schemas["NetworkHost"];
export type BusEvent = Schemas["Event"];

export type Match = Record<string, string | number>;
export interface Class { name: string; min_rate?: number; max_rate?: number; latency?: number; priority: number; flows: Match[] | null; state: "provisioning" | "active" | "degraded" | "ineffective"; reason?: string; paths: { hops: { switch: string; out: number }[] | null }[] | null }
export interface Queue { switch: string; port: number; bytes: number; packets: number; drops: number; bit_rate: number; without_effect: number; fault?: string }
export interface ClassStats { queues: Queue[] | null }
export interface Critical { name: string; rate: number; match: Match }
export interface CriticalFlow { id: string; definition: string; flow: string; state: "placing" | "accepted" | "best-effort"; reason?: string; rate: number; throughput: number; bytes: number; moves: number; path: { switch: string; out: number }[] | null }
export interface Reservation { link: string; promised: number }
