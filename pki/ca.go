package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/sluice-net/sluice/internal/wholefile"
)

// Names of an authority's files in its folder.
const (
	CACertFile = "ca.crt"
	CAKeyFile  = "ca.key"
)

// backdate is how long before its creation a certificate becomes valid, for peers whose clocks are
// slow.
const backdate = 5 * time.Minute

// CA is a certificate authority.
type CA struct {
	Cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Pair is a certificate with its key, both in PEM form.
type Pair struct{ Cert, Key []byte }

// NewCA returns a new authority.
func NewCA(name string, valid time.Duration) (*CA, error) {
	if !caNameForm.MatchString(name) {
		return nil, fmt.Errorf("pki: name of the authority %q: use up to 64 letters, digits, spaces, dots, dashes and underscores", name)
	}
	key, serial, err := keyAndSerial()
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name, Organization: []string{Organization}},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(valid),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("pki: make the authority: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("pki: make the authority: %w", err)
	}
	return &CA{Cert: cert, key: key}, nil
}

// Init creates an authority in the folder. It returns an error if the folder has one already,
// because all certificates of that authority would become invalid.
func Init(dir, name string, valid time.Duration) (*CA, error) {
	for _, file := range []string{CACertFile, CAKeyFile} {
		if _, err := os.Stat(filepath.Join(dir, file)); !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("pki: %s is there already: use it, or choose another folder", filepath.Join(dir, file))
		}
	}
	ca, err := NewCA(name, valid)
	if err != nil {
		return nil, err
	}
	key, err := keyPEM(ca.key)
	if err != nil {
		return nil, err
	}
	pair := Pair{Cert: ca.PEM(), Key: key}
	return ca, pair.Write(dir, "ca")
}

// Load reads the authority in the folder.
func Load(dir string) (*CA, error) {
	cert, err := ReadCert(filepath.Join(dir, CACertFile))
	if err != nil {
		return nil, fmt.Errorf("%w (\"sluice pki init\" makes an authority)", err)
	}
	b, err := os.ReadFile(filepath.Join(dir, CAKeyFile))
	if err != nil {
		return nil, fmt.Errorf("pki: %w", err)
	}
	block, _ := pem.Decode(b)
	if block == nil {
		return nil, fmt.Errorf("pki: %s: no key in PEM form in it", filepath.Join(dir, CAKeyFile))
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("pki: %s: %w", filepath.Join(dir, CAKeyFile), err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || !key.PublicKey.Equal(cert.PublicKey) {
		return nil, fmt.Errorf("pki: %s is not the key of %s", CAKeyFile, CACertFile)
	}
	return &CA{Cert: cert, key: key}, nil
}

// PEM returns the authority's certificate.
func (ca *CA) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Cert.Raw})
}

// Request describes a certificate to be issued.
type Request struct {
	Role Role
	// Name is the common name and the first DNS name.
	Name string
	// Hosts are further DNS names and IP addresses of the holder.
	Hosts []string
	// Valid is how long the certificate is valid; zero means a year.
	Valid time.Duration
}

var (
	nameForm   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)
	caNameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9 ._-]{0,63}$`)
)

func checkName(name string) error {
	if !nameForm.MatchString(name) {
		return fmt.Errorf("pki: name %q: use up to 63 letters, digits, dots, dashes and underscores, beginning with a letter or digit", name)
	}
	return nil
}

// Issue issues a certificate.
func (ca *CA) Issue(r Request) (Pair, error) {
	template, err := r.template()
	if err != nil {
		return Pair{}, err
	}
	if template.NotAfter.After(ca.Cert.NotAfter) {
		template.NotAfter = ca.Cert.NotAfter
	}
	key, serial, err := keyAndSerial()
	if err != nil {
		return Pair{}, err
	}
	template.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, template, ca.Cert, key.Public(), ca.key)
	if err != nil {
		return Pair{}, fmt.Errorf("pki: issue a certificate for %s: %w", r.Name, err)
	}
	keyBytes, err := keyPEM(key)
	return Pair{Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), Key: keyBytes}, err
}

func (r Request) template() (*x509.Certificate, error) {
	if err := checkName(r.Name); err != nil {
		return nil, err
	}
	if !slices.Contains(Roles(), r.Role) {
		return nil, fmt.Errorf("pki: role %q: use one of %v", r.Role, Roles())
	}
	if r.Valid == 0 {
		r.Valid = 365 * 24 * time.Hour
	}
	if r.Valid < 0 {
		return nil, fmt.Errorf("pki: validity %v: it must be in the future", r.Valid)
	}
	now := time.Now()
	t := &x509.Certificate{
		Subject:   pkix.Name{CommonName: r.Name, Organization: []string{Organization}, OrganizationalUnit: []string{string(r.Role)}},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(r.Valid),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		DNSNames:    []string{r.Name}, BasicConstraintsValid: true,
	}
	if !slices.Contains(clientOnly, r.Role) {
		t.ExtKeyUsage = append(t.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	for _, h := range r.Hosts {
		if ip := net.ParseIP(h); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else if u, err := url.Parse("https://" + h); err == nil && u.Host == h && u.Port() == "" && h != "" {
			t.DNSNames = append(t.DNSNames, h)
		} else {
			return nil, fmt.Errorf("pki: host %q: write a DNS name or an IP address", h)
		}
	}
	return t, nil
}

func keyAndSerial() (*ecdsa.PrivateKey, *big.Int, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("pki: make a key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, nil, fmt.Errorf("pki: make a serial number: %w", err)
	}
	return key, serial, nil
}

func keyPEM(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("pki: encode a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// Write stores the pair as NAME.crt and NAME.key in the folder. The key is readable by its owner
// only. In a folder with the set-group-ID bit, such as the Debian package creates, it is
// readable by the folder's group as well, so that a service with its own user can read what root
// has issued. Each existing file is replaced atomically.
func (p Pair) Write(dir, name string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("pki: %w", err)
	}
	mode := fs.FileMode(0o600)
	if info, err := os.Stat(dir); err == nil && info.Mode()&fs.ModeSetgid != 0 && name+".key" != CAKeyFile {
		mode = 0o640
	}
	if err := replace(filepath.Join(dir, name+".key"), p.Key, mode); err != nil {
		return err
	}
	return replace(filepath.Join(dir, name+".crt"), p.Cert, 0o644)
}

// replace writes a file atomically: a reader sees the old or the new content.
func replace(file string, content []byte, mode fs.FileMode) error {
	if err := wholefile.Replace(file, content, mode); err != nil {
		return fmt.Errorf("pki: %w", err)
	}
	return nil
}

// ReadCert reads the first certificate of a PEM file.
func ReadCert(file string) (*x509.Certificate, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("pki: %w", err)
	}
	block, _ := pem.Decode(b)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, fmt.Errorf("pki: %s: no certificate in PEM form in it", file)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("pki: %s: %w", file, err)
	}
	return cert, nil
}
