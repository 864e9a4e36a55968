package mobilityfirst

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/testbed"
)

// TestDownloadWhileMoving checks that curl downloads 100 MB from nginx, by "sluice mf proxy" at both
// ends, while the client's host moves twice between switches. Neither curl nor nginx knows of names.
func TestDownloadWhileMoving(t *testing.T) {
	begin(t)
	l := lab.New(t, line("mfproxy"))
	c := control(t, l)
	dir := t.TempDir()
	want := random(t, 100_000_000)
	if err := os.WriteFile(filepath.Join(dir, "file"), want, 0o644); err != nil {
		t.Fatal(err)
	}
	web, err := testbed.StartWebServer(t.Context(), l.Host("b"), dir, dir, 80)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(web.Stop)

	key := filepath.Join(dir, "web.key")
	name := newName(t, key)
	proxyAt := func(host string, args ...string) {
		t.Helper()
		socket := filepath.Join(dir, host+".sock")
		daemon(t, l.Host(host), dir, "mf", "host", "--interface", "eth0", "--socket", socket)
		eventually(t, "the host accepts applications", func() bool { _, err := os.Stat(socket); return err == nil })
		daemon(t, l.Host(host), dir, append([]string{"mf", "proxy", "--socket", socket}, args...)...)
	}
	proxyAt("b", "--name-key", key, "--connect", "127.0.0.1:80")
	proxyAt("a", "--listen", "127.0.0.1:8080", "--to", name)
	eventually(t, "the proxy accepts connections", func() bool {
		return strings.Contains(testbed.Tail(filepath.Join(dir, "a-proxy.log"), 5), "connections to 127.0.0.1:8080")
	})
	known(t, c)

	file, began := filepath.Join(dir, "download"), time.Now()
	downloaded := make(chan error, 1)
	go func() {
		// Slowly, so that it is still going on when the host moves.
		out, err := l.Host("a").Command(t.Context(), "curl", "--silent", "--show-error", "--fail", "--limit-rate", "10M", "--max-time", "240", "--output", file, "http://127.0.0.1:8080/file").CombinedOutput()
		if err != nil {
			err = fmt.Errorf("curl: %w: %s", err, out)
		}
		downloaded <- err
	}()
	for i, to := range []string{"s2", "s3"} {
		eventually(t, "the download is under way", func() bool { return size(file) > int64(len(want)*(i+1)/4) })
		select {
		case err := <-downloaded:
			t.Fatalf("the download has ended before the move: %v", err)
		default:
		}
		if err := l.MoveLink(t.Context(), "a-s1", to); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-downloaded; err != nil {
		t.Fatal(err)
	}
	t.Logf("100 MB in %v", time.Since(began))
	got, err := os.ReadFile(file)
	if err != nil || sha256.Sum256(got) != sha256.Sum256(want) {
		t.Errorf("%d bytes of %d, or others: %v", len(got), len(want), err)
	}
}
