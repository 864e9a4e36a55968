package pki

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"testing"
)

// A certificate of a company's authority has the role that it is mapped to, whatever its
// subject says.
func TestRoleOf(t *testing.T) {
	roles := Mapping{"mapped": RoleAgent}
	for _, c := range []struct {
		name    string
		subject pkix.Name
		want    Role
	}{
		{"ours", pkix.Name{CommonName: "a", Organization: []string{Organization}, OrganizationalUnit: []string{"operator"}}, RoleOperator},
		{"ours, mapped", pkix.Name{CommonName: "mapped", Organization: []string{Organization}, OrganizationalUnit: []string{"operator"}}, RoleOperator},
		{"ours without a role", pkix.Name{CommonName: "a", Organization: []string{Organization}}, ""},
		{"another organization", pkix.Name{CommonName: "a", Organization: []string{"Example"}, OrganizationalUnit: []string{"operator"}}, ""},
		{"another organization, mapped", pkix.Name{CommonName: "mapped", Organization: []string{"Example"}, OrganizationalUnit: []string{"operator"}}, RoleAgent},
		{"no organization", pkix.Name{CommonName: "a", OrganizationalUnit: []string{"operator"}}, ""},
		{"ours among others", pkix.Name{CommonName: "a", Organization: []string{"Example", Organization}, OrganizationalUnit: []string{"operator"}}, ""},
		{"ours in other letters", pkix.Name{CommonName: "a", Organization: []string{"sluice"}, OrganizationalUnit: []string{"operator"}}, ""},
		{"a unit in other letters", pkix.Name{CommonName: "a", Organization: []string{Organization}, OrganizationalUnit: []string{"Operator"}}, ""},
		{"a role as the name", pkix.Name{CommonName: "operator", Organization: []string{"operator"}}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := roles.RoleOf(&x509.Certificate{Subject: c.subject}); got != c.want {
				t.Errorf("RoleOf(%v) = %q, want %q", c.subject, got, c.want)
			}
		})
	}
}
