package pki

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
)

// Renewal describes how a new certificate differs from the one that it replaces.
type Renewal struct {
	// Kept lists the DNS names and addresses that both have, Lost those that only the old one
	// has.
	Kept, Lost []string
	// Was is the role of the old one if the new one has another role, otherwise empty.
	Was Role
}

// Renew completes a request from the certificate with the same name in the folder, if there is
// one: a request without Hosts gets the hosts of the old certificate. Renew refuses to replace a
// certificate of another authority, or a file without a certificate, because somebody may still
// need it.
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

// HostsOf returns the DNS names and addresses of a certificate except its common name.
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
