package namespace

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/internal/live"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// own is the network namespace of the calling thread.
func own(t *testing.T) string {
	t.Helper()
	link, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	return link
}

func TestNamespace(t *testing.T) {
	live.Test(t)
	name := fmt.Sprintf("sluice-nstest-%d", os.Getpid())
	if err := Create(name); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := Delete(name); err != nil {
			t.Error(err)
		}
		if Exists(name) {
			t.Error("the namespace is there after it has been deleted")
		}
	}()
	if err := Create(name); err == nil {
		t.Error("a second namespace of one name is made")
	}
	outside := own(t)
	inside := ""
	if err := Do(Path(name), func() error { inside = own(t); return nil }); err != nil {
		t.Fatal(err)
	}
	if inside == outside {
		t.Errorf("Do runs in %s, where it was called", inside)
	}
	if back := own(t); back != outside {
		t.Errorf("after Do the caller is in %s, before it was in %s", back, outside)
	}
	if err := Do(Path(name+"-absent"), func() error { return nil }); err == nil {
		t.Error("Do enters a namespace that does not exist")
	}
}
