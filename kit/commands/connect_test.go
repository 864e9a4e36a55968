package commands

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
)

// TestLocalToken checks that the token of a controller on this machine is sent only to a controller
// on this machine.
func TestLocalToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	here, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range here {
		prefix := netip.MustParsePrefix(a.String())
		if server := "https://" + netip.AddrPortFrom(prefix.Addr(), 8443).String(); !isLocal(server) {
			t.Errorf("%s is of this machine, and is not said to be", server)
		}
	}
	for server, want := range map[string]string{
		DefaultServer: "secret", "https://localhost:8443": "secret", "https://[::1]:8443": "secret", "https://127.9.9.9": "secret",
		"https://controller.example:8443": "", "https://192.0.2.1": "", "https://localhost.example": "", "https://127.0.0.1.example": "",
		"https://127.0.0.1@192.0.2.1/": "", "%": "",
	} {
		app := &App{LocalTokens: []string{file + "-missing", file}}
		app.connection.at.Server = server
		if got, err := app.token(); err != nil || got != want {
			t.Errorf("to %s: token %q, %v; want %q", server, got, err, want)
		}
	}
}
