package cli

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/mobilityfirst/access"
)

// Hosts are declared by GUID, key and Ethernet address, and errors in declarations are reported.
func TestAccess(t *testing.T) {
	dir := t.TempDir()
	key, other := filepath.Join(dir, "key"), filepath.Join(dir, "other")
	name := newName(t, key)
	newName(t, other)
	const guid, second = "1100000000000000000000000000000000000001", "1100000000000000000000000000000000000002"
	for text, want := range map[string]openflow.MAC{guid + "=" + key: {}, guid + "=" + key + ",02:00:00:00:00:07": {2, 5: 7}} {
		h, err := parseServed(text)
		if err != nil || h.GUID.String() != guid || h.MAC != want || len(h.Key) == 0 {
			t.Errorf("%s: %+v, %v", text, access.Host{GUID: h.GUID, MAC: h.MAC}, err)
		}
	}
	if others, err := parseOthers([]string{second + "=" + name}); err != nil || len(others) != 1 {
		t.Errorf("%v, %v", others, err)
	}
	good := []string{"--interface", "eth1", "--host", guid + "=" + key}
	for _, wrong := range []struct {
		args []string
		want string
	}{
		{good[2:], "--interface is missing"},
		{good[:2], "--host is missing"},
		{append(good, "--memory", "1MiB"), "at least 24MiB"},
		{append(good, "--keep", "1ms"), "want 1s to 24h"},
		{append(good, "--silent", "1ms"), "want 1s to 1h"},
		{append(good, "--other", name), "want GUID=NAME"},
		{append(good, "--other", "laptop="+name), "40 hexadecimal digits"},
		{append(good, "--other", second+"="+name, "--other", second+"="+name), "has a name already"},
		{append(good, "--other", guid+"="+name), "is served here and elsewhere"},
		{append(good, "--host", second+"="+key), "the same name"},
		{append(good, "--host", "9"+guid[1:]+"="+other), "cannot be told apart"},
		{append(good, "--host", second), "want GUID=KEYFILE"},
		{append(good, "--host", "camera="+other), "40 hexadecimal digits"},
		{append(good, "--host", second+"="+other+",somewhere"), "six pairs"},
		{append(good, "--host", second+"="+filepath.Join(dir, "none")), "no such file"},
		{append(good, "--metrics", "0.0.0.0:1"), "loopback"},
	} {
		code, _, errOut := sluice(t, append([]string{"mf", "access"}, wrong.args...)...)
		if code == command.ExitOK || !strings.Contains(errOut, wrong.want) {
			t.Errorf("%q: %d, %s", wrong.args, code, errOut)
		}
	}
}
