package commands

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/pki"
)

const (
	// DefaultServer is the API of a controller on this machine.
	DefaultServer = "http://127.0.0.1:8080"
	// SystemTokenFile is where a controller started by systemd keeps its token.
	SystemTokenFile = "/var/lib/sluice/token"
)

// connection holds how to reach the controller.
type connection struct {
	// at holds the controller's address and credentials.
	at config.Context
	// context is the name of the context that supplies at, or "".
	context string
	flags   *pflag.FlagSet
}

// setting is one setting of a connection and its flag.
type setting struct {
	flag, env, fallback, usage string
	to                         *string
}

func settingsOf(c *config.Context) []setting {
	return []setting{
		{"server", "SLUICE_SERVER", DefaultServer, "URL of the controller's API", &c.Server},
		{"token-file", "SLUICE_TOKEN_FILE", "", "file with the API token; left out, for a controller on this machine: " + SystemTokenFile, &c.TokenFile},
		{"ca", "SLUICE_CA", "", "certificate authority of the API, PEM", &c.CA},
		{"cert", "SLUICE_CERT", "", "client certificate instead of a token, PEM", &c.Cert},
		{"key", "SLUICE_KEY", "", "key of the client certificate, PEM", &c.Key},
	}
}

func (c *connection) define(f *pflag.FlagSet) {
	c.flags = f
	for _, s := range settingsOf(&c.at) {
		command.EnvFlag(f, s.to, s.flag, "", s.env, s.fallback, s.usage)
	}
	command.EnvFlag(f, &c.context, "context", "", "SLUICE_CONTEXT", "", "name of a context, see \"sluice context\"")
}

// token returns the bearer token. It reads the file that the flag, the environment or the context
// names. Without a context it otherwise reads a token file of a controller on this machine that
// this user may read; such a token is never sent to another machine.
func (a *App) token() (string, error) {
	if a.connection.at.TokenFile == "" && a.connection.context != "" {
		return "", nil
	}
	if a.connection.at.TokenFile != "" {
		b, err := os.ReadFile(a.connection.at.TokenFile)
		if err != nil {
			return "", fmt.Errorf("read the token: %w (--token-file names the file that the controller wrote)", err)
		}
		return strings.TrimSpace(string(b)), nil
	}
	if t := os.Getenv("SLUICE_TOKEN"); t != "" {
		return t, nil
	}
	if isLocal(a.connection.at.Server) {
		for _, file := range a.LocalTokens {
			if b, err := os.ReadFile(file); err == nil {
				return strings.TrimSpace(string(b)), nil
			}
		}
	}
	return "", nil // the controller's answer says what it requires
}

// isLocal reports whether a URL leads to this machine by an address of the loopback interface or of
// another local interface. Of all names, only localhost does: other names may resolve to any
// address.
func isLocal(server string) bool {
	u, err := url.Parse(server)
	if err != nil {
		return false
	}
	if u.Hostname() == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(u.Hostname())
	if err != nil || addr.IsLoopback() {
		return err == nil
	}
	all, err := net.InterfaceAddrs()
	return err == nil && slices.ContainsFunc(all, func(a net.Addr) bool {
		prefix, err := netip.ParsePrefix(a.String())
		return err == nil && prefix.Addr() == addr.Unmap()
	})
}

func (a *App) tls() (*tls.Config, error) {
	if (a.connection.at.Cert == "") != (a.connection.at.Key == "") {
		return nil, errors.New("--cert and --key belong together: give both or none")
	}
	c, err := pki.Client(pki.Files{Cert: a.connection.at.Cert, Key: a.connection.at.Key, CA: a.connection.at.CA})
	if err != nil {
		return nil, fmt.Errorf("--ca, --cert, --key: %w", err)
	}
	return c, nil
}
