// The API's types as this page names them, taken from the OpenAPI document.

import type { components } from "./openapi";

type Schemas = components["schemas"];

export type Status = Schemas["ControllerStatus"];
export type Place = Schemas["NetworkPlace"];
export type Switch = Schemas["NetworkSwitch"];
export type Link = Schemas["NetworkLink"];
export type Port = Schemas["NetworkPort"];
export type Host = Schemas["NetworkHost"];
export type BusEvent = Schemas["Event"];

export type Match = Schemas["QosFlow"];
export type Class = Schemas["QosInfo"];
export type ClassStats = Schemas["QosStats"];
export type Queue = Schemas["QosQueueStats"];
export type Critical = Schemas["QosDefinitionInfo"];
export type CriticalFlow = Schemas["QosRecord"];
export type Subflow = Schemas["QosSubflow"];
export type Reservation = Schemas["QosReservation"];

export type Rule = Schemas["NetworkRule"];
export type Trace = Schemas["NetworkTrace"];
export type TraceStep = Schemas["NetworkStep"];
export type LinkHistory = Schemas["NetworkLinkHistory"];
export type LinkPoint = Schemas["NetworkLinkPoint"];

export type Agent = Schemas["ServiceAgentInfo"];
export type Entry = Schemas["SosEntryInfo"];
export type Session = Schemas["SosRecord"];
export type Sample = Schemas["SosSample"];
export type AllPaths = Schemas["SosAllPaths"];
export type SosPath = Schemas["SosPathInfo"];
export type Direct = Schemas["SosDirect"];
export type SosStatus = Schemas["SosStatus"];

export type Device = Schemas["HandoverDeviceInfo"];
export type Spot = Schemas["HandoverSpot"];
export type Move = Schemas["HandoverRecord"];
export type Order = Schemas["HandoverOrder"];
export type HandoverStatus = Schemas["HandoverStatus"];

export type Channel = Schemas["CinemaChannelInfo"];
export type Tree = Schemas["CinemaTreeInfo"];
export type TreeSwitch = Schemas["CinemaTreeSwitch"];
export type Viewer = Schemas["CinemaViewerInfo"];
export type Budget = Schemas["CinemaLinkInfo"];
export type Lineup = Schemas["GatewayLineup"];

export type Name = Schemas["MobilityfirstNameInfo"];
export type NamePath = Schemas["MobilityfirstPathInfo"];
export type NameNode = Schemas["MobilityfirstNodeInfo"];
export type NameFunction = Schemas["MobilityfirstFunctionInfo"];
export type CustodyList = Schemas["MobilityfirstCustodyList"];
export type Custody = Schemas["MobilityfirstCustodyInfo"];
