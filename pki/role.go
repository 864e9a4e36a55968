package pki

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
)

// Role is what the holder of a certificate is.
type Role string

// The roles. Each may be client and server, except for clientOnly; what a holder
// may do is decided by those it talks to, see Mapping.Require.
const (
	RoleController Role = "controller"
	RoleAgent      Role = "agent"
	RoleSwitch     Role = "switch"
	RoleOperator   Role = "operator"
	// RoleNeighbour is another domain's controller, to which we have issued a
	// certificate so that it can hand devices over to us.
	RoleNeighbour Role = "neighbour"
	// RoleNode is a storage node, compute node or cache of names. The controller asks it; it opens nothing
	// that is for agents.
	RoleNode Role = "node"
)

// Roles lists all roles.
func Roles() []Role {
	return []Role{RoleController, RoleAgent, RoleSwitch, RoleOperator, RoleNeighbour, RoleNode}
}

// clientOnly are the roles whose holders serve nothing.
var clientOnly = []Role{RoleOperator, RoleNeighbour}

// Organization is the only organization in the subject of every certificate that "sluice pki"
// issues.
const Organization = "Sluice"

// RoleOf returns the role that a certificate names by its organizational unit, or "" if it
// names none. A unit counts only in certificates of Organization: a company's authority, too,
// has units such as "operator", which give no role here.
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

// Mapping gives roles to holders whose certificates name none, by their common
// name. AnyName stands for all that it does not name.
type Mapping map[string]Role

// AnyName maps every certificate without a role, of an authority that certifies
// holders of one role only.
const AnyName = "*"

// RoleOf returns the role that a certificate names, or the one that is mapped to
// its holder if it names none, or "".
func (m Mapping) RoleOf(cert *x509.Certificate) Role {
	if role := RoleOf(cert); role != "" {
		return role
	}
	if role, mapped := m[cert.Subject.CommonName]; mapped {
		return role
	}
	return m[AnyName]
}

// Require returns a check for tls.Config.VerifyConnection: a peer that shows a
// certificate must have one of roles (any, or none, if there are no roles). That
// the certificate itself is good has been checked before.
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
