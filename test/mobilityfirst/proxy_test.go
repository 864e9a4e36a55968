package mobilityfirst

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/mobilityfirst/proxy"
)

// A download by curl, from nginx, which know nothing of names, goes on while the client's host moves twice
// between switches.
func TestDownloadWhileMoving(t *testing.T) {
	begin(t)
	l := lab.New(t, line("mfproxy"))
	c := control(t, l)
	near, far := pair(t, l, c)
	dir := t.TempDir()
	want := random(t, 50_000_000)
	if err := os.WriteFile(filepath.Join(dir, "file"), want, 0o644); err != nil {
		t.Fatal(err)
	}
	web, err := testbed.StartWebServer(t.Context(), l.Host("b"), dir, dir, 80)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(web.Stop)

	server := proxy.New(proxy.Options{Client: far, Connect: "127.0.0.1:80", Dial: func(ctx context.Context, network, addr string) (c net.Conn, err error) {
		failed := l.Host("b").Do(func() error { c, err = new(net.Dialer).DialContext(ctx, network, addr); return err })
		return c, failed
	}})
	client := proxy.New(proxy.Options{Client: near, To: far.Name})
	var accepts net.Listener
	if err := l.Host("a").Do(func() error { accepts, err = net.Listen("tcp", "127.0.0.1:8080"); return err }); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var all sync.WaitGroup
	for _, f := range []func(context.Context) error{server.Run, client.Run, func(ctx context.Context) error { return client.Serve(ctx, accepts) }} {
		all.Go(func() {
			if err := f(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() { cancel(); all.Wait() })

	file, began := filepath.Join(dir, "download"), time.Now()
	downloaded := make(chan error, 1)
	go func() {
		// Slowly, so that it is still going on when the host moves.
		out, err := l.Host("a").Command(t.Context(), "curl", "--silent", "--show-error", "--fail", "--limit-rate", "10M", "--max-time", "120", "--output", file, "http://127.0.0.1:8080/file").CombinedOutput()
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
	t.Logf("50 MB in %v", time.Since(began))
	got, err := os.ReadFile(file)
	if err != nil || sha256.Sum256(got) != sha256.Sum256(want) {
		t.Errorf("%d bytes of %d, or others: %v", len(got), len(want), err)
	}
}
