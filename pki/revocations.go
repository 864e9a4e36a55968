package pki

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/wholefile"
)

// maxCRL limits the file of revoked certificates, in bytes: 50,000 of them take 2 MB.
const maxCRL = 16 << 20

// CRLFile returns the file of an authority's revoked certificates: ca.crl beside ca.crt.
func CRLFile(ca string) string { return strings.TrimSuffix(ca, filepath.Ext(ca)) + ".crl" }

// Revocations knows the revoked certificates of an authority. It reads the file again when the
// file changes. While the new file cannot be read, or is missing, the previous content remains
// in effect. Revocations is safe for concurrent use.
type Revocations struct {
	ca, file string

	mu      sync.Mutex
	checked time.Time
	stamp   string
	revoked map[string]time.Time // by issuer and serial number
}

// NewRevocations reads the revoked certificates beside the file of the authorities'
// certificates. A missing file means that none are revoked. NewRevocations returns an error if
// the file cannot be read, or if none of the authorities has signed it.
func NewRevocations(caFile string) (*Revocations, error) {
	r := &Revocations{ca: caFile, file: CRLFile(caFile)}
	return r, r.reload()
}

// Check returns an error if the certificate is revoked.
func (r *Revocations) Check(cert *x509.Certificate) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.checked) >= recheck {
		_ = r.reload() // the previous content stays in effect; doctor and revoke report bad files
	}
	if at, ok := r.revoked[serialOf(cert.RawIssuer, cert.SerialNumber.Text(16))]; ok {
		return fmt.Errorf("pki: the certificate of %q was revoked at %s", cert.Subject.CommonName, at.Format(time.RFC3339))
	}
	return nil
}

// Verify returns a check for tls.Config.VerifyConnection that refuses revoked certificates
// before it calls next, which may be nil.
func (r *Revocations) Verify(next func(tls.ConnectionState) error) func(tls.ConnectionState) error {
	return func(s tls.ConnectionState) error {
		if len(s.PeerCertificates) > 0 {
			if err := r.Check(s.PeerCertificates[0]); err != nil {
				return err
			}
		}
		if next == nil {
			return nil
		}
		return next(s)
	}
}

// reload reads the file if it has changed. The lock is held, or r is not shared yet.
func (r *Revocations) reload() error {
	r.checked = time.Now()
	info, err := os.Stat(r.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("pki: revoked certificates: %w", err)
	}
	stamp := fmt.Sprintf("%d:%d", info.ModTime().UnixNano(), info.Size())
	if stamp == r.stamp {
		return nil
	}
	lists, err := readCRLs(r.file, r.ca)
	if err != nil {
		return err
	}
	revoked := map[string]time.Time{}
	for _, l := range lists {
		for _, e := range l.RevokedCertificateEntries {
			revoked[serialOf(l.RawIssuer, e.SerialNumber.Text(16))] = e.RevocationTime
		}
	}
	r.revoked, r.stamp = revoked, stamp
	return nil
}

func serialOf(issuer []byte, serial string) string { return string(issuer) + " " + serial }

// readCRLs reads the lists in a PEM or DER file. One of the authorities must have signed each
// list.
func readCRLs(file, caFile string) ([]*x509.RevocationList, error) {
	b, err := wholefile.Read(file, maxCRL)
	if err != nil {
		return nil, fmt.Errorf("pki: revoked certificates: %w", err)
	}
	ders, err := crlBlocks(b)
	if err != nil {
		return nil, fmt.Errorf("pki: %s: %w", file, err)
	}
	authorities, err := readCerts(caFile)
	if err != nil {
		return nil, err
	}
	lists := make([]*x509.RevocationList, 0, len(ders))
	for _, der := range ders {
		l, err := x509.ParseRevocationList(der)
		if err != nil {
			return nil, fmt.Errorf("pki: %s: %w", file, err)
		}
		if !signedByOne(l, authorities) {
			return nil, fmt.Errorf("pki: %s: the list of %q is signed by none of the authorities in %s", file, l.Issuer.CommonName, caFile)
		}
		lists = append(lists, l)
	}
	return lists, nil
}

func signedByOne(l *x509.RevocationList, authorities []*x509.Certificate) bool {
	for _, ca := range authorities {
		if l.CheckSignatureFrom(ca) == nil {
			return true
		}
	}
	return false
}

// crlBlocks returns the lists in a PEM file, or the whole content as one list in DER.
func crlBlocks(b []byte) ([][]byte, error) {
	var out [][]byte
	block, rest := pem.Decode(b)
	if block == nil {
		return [][]byte{b}, nil
	}
	for ; block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "X509 CRL" {
			return nil, fmt.Errorf("a %s in it, want lists of revoked certificates only", block.Type)
		}
		out = append(out, block.Bytes)
	}
	return out, nil
}

// readCerts reads all certificates of a PEM file.
func readCerts(file string) ([]*x509.Certificate, error) {
	b, err := wholefile.Read(file, maxFile)
	if err != nil {
		return nil, fmt.Errorf("pki: authority: %w", err)
	}
	var out []*x509.Certificate
	for block, rest := pem.Decode(b); block != nil; block, rest = pem.Decode(rest) {
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("pki: authority %s: %w", file, err)
		}
		out = append(out, cert)
	}
	return out, nil
}
