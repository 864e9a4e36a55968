package cli

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/pki"
)

const (
	defaultServer = "http://127.0.0.1:8080"
	// systemTokenFile is where a controller started by systemd keeps its token.
	systemTokenFile = "/var/lib/sluice/token"
)

// token reads the bearer token: the file named by the flag or environment, or
// else that of a controller on this machine which this user may read.
func (a *App) token() (string, error) {
	if a.tokenFile != "" {
		b, err := os.ReadFile(a.tokenFile)
		if err != nil {
			return "", fmt.Errorf("read the token: %w (--token-file names the file that the controller wrote)", err)
		}
		return strings.TrimSpace(string(b)), nil
	}
	if t := os.Getenv("SLUICE_TOKEN"); t != "" {
		return t, nil
	}
	for _, file := range []string{filepath.Join(config.DefaultDataDir(), "token"), systemTokenFile} {
		if b, err := os.ReadFile(file); err == nil {
			return strings.TrimSpace(string(b)), nil
		}
	}
	return "", nil // the controller says what it wants
}

func (a *App) tls() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if a.caFile != "" {
		b, err := os.ReadFile(a.caFile)
		if err != nil {
			return nil, fmt.Errorf("--ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(b) {
			return nil, fmt.Errorf("--ca %s: no certificate in PEM form in it", a.caFile)
		}
		revocations, err := pki.NewRevocations(a.caFile)
		if err != nil {
			return nil, fmt.Errorf("--ca: %w", err)
		}
		c.VerifyConnection = revocations.Verify(nil)
	}
	if (a.certFile == "") != (a.keyFile == "") {
		return nil, errors.New("--cert and --key belong together: give both or none")
	}
	if a.certFile != "" {
		cert, err := tls.LoadX509KeyPair(a.certFile, a.keyFile)
		if err != nil {
			return nil, fmt.Errorf("--cert, --key: %w", err)
		}
		c.Certificates = []tls.Certificate{cert}
	}
	return c, nil
}
