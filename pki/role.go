package pki

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
)

// Role is the kind of holder of a certificate.
type Role string

// The roles. Each may act as client and server, except those in clientOnly. What a holder may do
// is decided by its peers, see Mapping.Require.
const (
	RoleController Role = "controller"
	RoleAgent      Role = "agent"
	RoleSwitch     Role = "switch"
	RoleOperator   Role = "operator"
	// RoleNeighbour is another domain's controller, to which we have issued a certificate so
	// that it can hand devices over to us.
	RoleNeighbour Role = "neighbour"
	// RoleNode is a storage node, compute node or cache of names. The controller connects to it;
	// its certificate gives no access to what is for agents.
	RoleNode Role = "node"
)

// Roles returns all roles.
func Roles() []Role {
	return []Role{RoleController, RoleAgent, RoleSwitch, RoleOperator, RoleNeighbour, RoleNode}
}

// clientOnly lists the roles whose holders are never servers.
var clientOnly = []Role{RoleOperator, RoleNeighbour}

// Organization is the only organization in the subject of every certificate that "sluice pki"
// issues.
const Organization = "Sluice"

// RoleOf returns the role that a certificate names in its organizational unit, or "". A unit
// counts only in certificates of Organization, because a company's authority may use units such
// as "operator" as well.
func RoleOf(cert *x509.Certificate) Role {
	if !slices.Equal(cert.Subject.Organization, []string{Organization}) {
		return ""
	}
	for _, unit := range cert.Subject.OrganizationalUnit {
		if slices.Contains(Roles(), Role(unit)) {
			return Role(unit)
		}
	}
	return ""
}

// Mapping gives roles to holders whose certificates name none, by their common name. AnyName
// applies to all other names.
type Mapping map[string]Role

// AnyName maps every certificate without a role. It is for an authority that certifies holders
// of one role only.
const AnyName = "*"

// RoleOf returns the role that a certificate names, or otherwise the role to which its holder is
// mapped, or "".
func (m Mapping) RoleOf(cert *x509.Certificate) Role {
	if role := RoleOf(cert); role != "" {
		return role
	}
	if role, mapped := m[cert.Subject.CommonName]; mapped {
		return role
	}
	return m[AnyName]
}

// Require returns a check for tls.Config.VerifyConnection: a peer that presents a certificate
// must have one of the roles. Without roles the check accepts every peer. The certificate itself
// has been verified before.
func (m Mapping) Require(roles ...Role) func(tls.ConnectionState) error {
	return func(s tls.ConnectionState) error {
		if len(roles) == 0 || len(s.PeerCertificates) == 0 {
			return nil
		}
		cert := s.PeerCertificates[0]
		role := m.RoleOf(cert)
		switch {
		case slices.Contains(roles, role):
			return nil
		case role == "":
			return fmt.Errorf("pki: the certificate of the peer %q names no role, want one of %v: \"sluice pki issue\" makes one, or map its name to a role under tls.roles", cert.Subject.CommonName, roles)
		}
		return fmt.Errorf("pki: the peer %q has a certificate for %s, want one for %v", cert.Subject.CommonName, role, roles)
	}
}
