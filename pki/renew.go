package pki

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
)

// Renewal says what became of the certificate that a new one replaces.
type Renewal struct {
	// Kept are the DNS names and addresses that the new one has from the old, Lost
	// those that it has no more.
	Kept, Lost []string
	// Was is the role of the old one if the new one has another, else empty.
	Was Role
}

// Renew completes a request by the certificate of the same name in the folder, if there
// is one: without Hosts it asks for those that the old one has. A certificate of another
// authority, or a file that holds none, is refused: who put it there may need it.
func (ca *CA) Renew(dir string, r Request) (Request, Renewal, error) {
	if err := checkName(r.Name); err != nil {
		return r, Renewal{}, err
	}
	file := filepath.Join(dir, r.Name+".crt")
	old, err := ReadCert(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return r, Renewal{}, nil
	case err != nil:
		return r, Renewal{}, fmt.Errorf("%w: remove the file, or choose another folder", err)
	case old.CheckSignatureFrom(ca.Cert) != nil:
		return r, Renewal{}, fmt.Errorf("pki: %s is of another authority, %q: remove it, or choose another folder", file, old.Issuer.CommonName)
	}
	var out Renewal
	if was := RoleOf(old); was != r.Role {
		out.Was = was
	}
	had := HostsOf(old)
	if r.Hosts == nil {
		r.Hosts, out.Kept = had, had
		return r, out, nil
	}
	for _, h := range had {
		if slices.Contains(r.Hosts, h) {
			out.Kept = append(out.Kept, h)
		} else {
			out.Lost = append(out.Lost, h)
		}
	}
	return r, out, nil
}

// HostsOf lists the DNS names and addresses of a certificate beside its common name.
func HostsOf(cert *x509.Certificate) []string {
	var out []string
	for _, name := range cert.DNSNames {
		if name != cert.Subject.CommonName {
			out = append(out, name)
		}
	}
	for _, ip := range cert.IPAddresses {
		out = append(out, ip.String())
	}
	return out
}
