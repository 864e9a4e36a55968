package cli

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

const (
	defaultServer = "http://127.0.0.1:8080"
	// systemTokenFile is where a controller started by systemd keeps its token.
	systemTokenFile = "/var/lib/sluice/token"
)

// token reads the bearer token: the file named by the flag or environment, or
// else that of the controller on this machine if it can be read.
func (a *App) token() (string, error) {
	if t := os.Getenv("SLUICE_TOKEN"); t != "" && a.tokenFile == "" {
		return t, nil
	}
	file, named := a.tokenFile, a.tokenFile != ""
	if !named {
		file = systemTokenFile
	}
	b, err := os.ReadFile(file)
	if err != nil {
		if !named && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission)) {
			return "", nil
		}
		return "", fmt.Errorf("read the token: %w (--token-file names the file that the controller wrote)", err)
	}
	return strings.TrimSpace(string(b)), nil
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
