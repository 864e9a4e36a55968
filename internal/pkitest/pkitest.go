// Package pkitest makes certificates that tests need and that package pki does not make.
package pkitest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// WithoutRole issues a certificate that names no role, as other tools issue them, from the
// authority in the folder that "sluice pki init" or pki.Init has created. Its organizational units
// have names of roles, but its organization is not pki.Organization. It is valid for clients and
// servers on 127.0.0.1. WithoutRole writes it as NAME.crt and NAME.key.
func WithoutRole(t testing.TB, dir, name string) {
	t.Helper()
	ca, err := x509.ParseCertificate(block(t, filepath.Join(dir, "ca.crt")))
	check(t, err)
	signer, err := x509.ParsePKCS8PrivateKey(block(t, filepath.Join(dir, "ca.key")))
	check(t, err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name, Organization: []string{"Example"}, OrganizationalUnit: []string{"operator", "controller"}},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, ca, key.Public(), signer)
	check(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	check(t, err)
	for file, b := range map[string]*pem.Block{".crt": {Type: "CERTIFICATE", Bytes: cert}, ".key": {Type: "PRIVATE KEY", Bytes: der}} {
		check(t, os.WriteFile(filepath.Join(dir, name+file), pem.EncodeToMemory(b), 0o600))
	}
}

func block(t testing.TB, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(file)
	check(t, err)
	block, _ := pem.Decode(b)
	if block == nil {
		t.Fatalf("%s: no PEM", file)
	}
	return block.Bytes
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
