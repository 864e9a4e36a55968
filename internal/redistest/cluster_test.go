package redistest

import (
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/internal/live"
	"github.com/sluice-net/sluice/internal/tasks"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// at returns an address of this process's own, with a port.
func at(port uint16) netip.AddrPort {
	pid := os.Getpid()
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 101 + byte(pid>>16), byte(pid >> 8), byte(pid)}), port)
}

func needServer(t *testing.T) {
	t.Helper()
	live.Test(t)
	if _, err := exec.LookPath(server); err != nil {
		t.Skip("redis-server is not installed: scripts/deps.sh test does that")
	}
}

// A node that was killed and started again has what it had acknowledged. Stop leaves no folder.
func TestRestart(t *testing.T) {
	needServer(t)
	c, err := Start(t.Context(), Options{At: at(21000), Masters: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Stop()
	n := c.Nodes[0]
	node := c.Node(n)
	defer node.Close()
	const key = "{06S}" // the hash tag's slot, 0, belongs to the first master
	if err := node.Set(t.Context(), key, "value", 0).Err(); err != nil {
		t.Fatal(err)
	}
	n.Kill()
	if err := c.Restart(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	var got string
	err = tasks.Poll(t.Context(), stepTimeout, "a cluster that is up again", func() (err error) {
		got, err = node.Get(t.Context(), key).Result()
		return err
	})
	if got != "value" || err != nil {
		t.Errorf("after the restart: %q, %v", got, err)
	}
	c.Stop()
	if _, err := os.Stat(c.Dir); !os.IsNotExist(err) {
		t.Errorf("the folder is left: %v", err)
	}
}

// A node that ends at once is reported at once, with its own words.
func TestNodeThatDoesNotStart(t *testing.T) {
	needServer(t)
	_, err := Start(t.Context(), Options{At: at(21010), Masters: 1, Settings: []string{"no-such-setting yes"}})
	if err == nil || !strings.Contains(err.Error(), "no-such-setting") {
		t.Errorf("%v", err)
	}
}
