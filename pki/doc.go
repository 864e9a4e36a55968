// Package pki makes the certificates with which controllers, agents, switches,
// operators, nodes and neighbouring domains prove who they are to each other: a small certificate
// authority in a folder, and TLS configurations that use what it issues.
//
// A certificate says in its organizational unit what its holder is (see Role),
// so that an agent's certificate does not open what is for controllers. One that
// says nothing, because another authority made it, opens nothing that a role is
// required for, unless a Mapping gives its holder a role. All keys are ECDSA P-256, which every TLS stack of switches speaks.
//
// Certificates are read again when their files change, so renewing one needs
// no restart.
package pki
