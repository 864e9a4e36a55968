// Package pki issues the certificates with which controllers, agents, switches, operators, nodes
// and neighbouring domains authenticate each other. It has a small certificate authority in a
// folder, and TLS configurations that use its certificates. Start reading with ca.go and tls.go.
//
// The organizational unit of a certificate names its holder's role (see Role), so that an
// agent's certificate gives no access to what is for controllers. A certificate without a role,
// from another authority, gives no access where a role is required, unless a Mapping gives its
// holder a role. All keys are ECDSA P-256, which every TLS stack of switches supports.
//
// Certificates are read again when their files change, so renewing one needs no restart.
package pki
