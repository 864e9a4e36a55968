package pki

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// issuedFile is the record of the certificates that an authority has issued, one on each line:
// serial number in hex, expiry, role, name. With this record, the certificates of a name can be
// revoked even if their files are elsewhere.
const issuedFile = "issued"

// Record records an issued certificate in the authority's folder.
func Record(dir string, p Pair) error {
	block, _ := pem.Decode(p.Cert)
	if block == nil {
		return errors.New("pki: no certificate to record")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return fmt.Errorf("pki: record: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, issuedFile), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("pki: record: %w", err)
	}
	_, err = fmt.Fprintf(f, "%s %s %s %s\n", cert.SerialNumber.Text(16), cert.NotAfter.UTC().Format(time.RFC3339), RoleOf(cert), cert.Subject.CommonName)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("pki: record: %w", err)
	}
	return nil
}

// Issued returns the serial numbers of the certificates for a name that the folder knows: the
// recorded ones that have not expired, and the one in the name's file.
func (ca *CA) Issued(dir, name string) ([]*big.Int, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	var out []*big.Int
	b, err := os.ReadFile(filepath.Join(dir, issuedFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("pki: record: %w", err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		words := strings.Fields(lines.Text())
		if len(words) != 4 || words[3] != name {
			continue
		}
		serial, ok := new(big.Int).SetString(words[0], 16)
		if end, err := time.Parse(time.RFC3339, words[1]); ok && err == nil && time.Now().Before(end) {
			out = append(out, serial)
		}
	}
	cert, err := ReadCert(filepath.Join(dir, name+".crt"))
	if err == nil && cert.CheckSignatureFrom(ca.Cert) == nil && !slices.ContainsFunc(out, func(s *big.Int) bool { return s.Cmp(cert.SerialNumber) == 0 }) {
		out = append(out, cert.SerialNumber)
	}
	return out, nil
}

// Revoke adds serial numbers to the revoked certificates in the authority's folder, and returns
// how many are revoked now. Peers that trust the authority refuse these certificates once they
// have the file.
func (ca *CA) Revoke(dir string, serials ...*big.Int) (int, error) {
	file, caFile := CRLFile(filepath.Join(dir, CACertFile)), filepath.Join(dir, CACertFile)
	next := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: time.Now().Add(-backdate), NextUpdate: ca.Cert.NotAfter}
	lists, err := readCRLs(file, caFile)
	switch {
	case err == nil && len(lists) == 1:
		next.Number.Add(lists[0].Number, next.Number)
		next.RevokedCertificateEntries = lists[0].RevokedCertificateEntries
	case err == nil:
		return 0, fmt.Errorf("pki: %s: %d lists in it, want one", file, len(lists))
	case !errors.Is(err, fs.ErrNotExist):
		return 0, err
	}
	for _, s := range serials {
		if !slices.ContainsFunc(next.RevokedCertificateEntries, func(e x509.RevocationListEntry) bool { return e.SerialNumber.Cmp(s) == 0 }) {
			next.RevokedCertificateEntries = append(next.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: s, RevocationTime: time.Now()})
		}
	}
	der, err := x509.CreateRevocationList(rand.Reader, next, ca.Cert, ca.key)
	if err != nil {
		return 0, fmt.Errorf("pki: sign the revoked certificates: %w", err)
	}
	return len(next.RevokedCertificateEntries), replace(file, pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der}), 0o644)
}
