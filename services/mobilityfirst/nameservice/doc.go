// Package nameservice runs a name service (package gnrs) on a folder (package namestore) or
// a Redis Cluster (package redisnames), alone or as that of one of several domains (package replicas),
// by itself ("sluice mf gnrs") or in the controller (mobilityfirst.gnrs), which shows what it does.
package nameservice
