// Package nameservice runs a name service (package gnrs) on a folder (package namestore) or a Redis
// Cluster (package redisnames), alone or as one of several domains (package replicas). It runs by
// itself ("sluice mf gnrs") or in the controller (mobilityfirst.gnrs), whose API shows its status.
// Start reading at [Service.Run].
package nameservice
