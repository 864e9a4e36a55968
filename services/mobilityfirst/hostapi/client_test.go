package hostapi

import (
	"fmt"
	"os"
	"testing"

	"github.com/sluice-net/sluice/internal/live"
	"github.com/sluice-net/sluice/internal/namespace"
)

// Each namespace with a name has a socket of its own, and so has the machine. A namespace without
// a name uses the machine's path.
func TestDefaultSocket(t *testing.T) {
	live.Test(t)
	name := fmt.Sprintf("sluice-mfsocket-%d", os.Getpid())
	if err := namespace.Create(name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := namespace.Delete(name); err != nil {
			t.Error(err)
		}
	})
	machine, named, nameless := DefaultSocket(), "", ""
	if err := namespace.Do(namespace.Path(name), func() error { named = DefaultSocket(); return nil }); err != nil {
		t.Fatal(err)
	}
	if err := namespace.Anonymous(func() error { nameless = DefaultSocket(); return nil }); err != nil {
		t.Fatal(err)
	}
	if want := "/run/sluice/mf.sock"; machine != want || nameless != want {
		t.Errorf("on the machine %s, in a namespace without a name %s, want %s", machine, nameless, want)
	}
	if want := "/run/sluice/mf." + name + ".sock"; named != want {
		t.Errorf("in a namespace %s, want %s", named, want)
	}
}
