package testbed

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestWebServerAndCurl(t *testing.T) {
	for _, program := range []string{"nginx", "curl", "ss"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs %s", program)
		}
	}
	const port = 42011
	root, logs, got := t.TempDir(), t.TempDir(), t.TempDir()
	content := make([]byte, 1<<20)
	if _, err := rand.Read(content); err != nil {
		t.Fatal(err)
	}
	var urls []string
	for i := range 300 {
		name := fmt.Sprintf("f%d", i)
		if err := os.WriteFile(filepath.Join(root, name), content[:i], 0o644); err != nil {
			t.Fatal(err)
		}
		urls = append(urls, fmt.Sprintf("http://127.0.0.1:%d/%s", port, name))
	}
	if err := os.WriteFile(filepath.Join(root, "big"), content, 0o644); err != nil {
		t.Fatal(err)
	}
	server, err := StartWebServer(t.Context(), localhost{}, root, logs, port)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()

	file := filepath.Join(got, "big")
	d, err := Curl(t.Context(), localhost{}, fmt.Sprintf("http://127.0.0.1:%d/big", port), file, nil)
	if err != nil {
		t.Fatal(err)
	}
	if received, err := os.ReadFile(file); err != nil || !bytes.Equal(received, content) {
		t.Fatalf("the file differs from what was served: %v", err)
	}
	seen, err := server.Accesses()
	if err != nil || len(seen) != 1 || seen[0].Remote != d.Local || seen[0].Local != d.Remote || seen[0].Bytes != d.Bytes {
		t.Errorf("server logged %+v, client says %+v, %v", seen, d, err)
	}

	if err := CurlMany(t.Context(), localhost{}, urls, got); err != nil {
		t.Fatal(err)
	}
	for i := range urls {
		if received, err := os.ReadFile(filepath.Join(got, fmt.Sprint(i))); err != nil || !bytes.Equal(received, content[:i]) {
			if i == 0 && os.IsNotExist(err) {
				continue // curl makes no file for an empty answer.
			}
			t.Fatalf("file %d differs: %v", i, err)
		}
	}
	ports := map[string]bool{}
	if seen, err = server.Accesses(); err != nil {
		t.Fatal(err)
	}
	for _, a := range seen {
		ports[a.Remote] = true
	}
	if len(ports) != len(urls)+1 {
		t.Errorf("%d transfers used %d connections", len(urls)+1, len(ports))
	}
}

func TestCurlNamesTheFailure(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("needs curl")
	}
	_, err := Curl(t.Context(), localhost{}, "http://127.0.0.1:42012/x", filepath.Join(t.TempDir(), "x"), nil)
	if err == nil || !strings.Contains(err.Error(), "connect") {
		t.Errorf("error %v, want curl's own words", err)
	}
	if err := CurlMany(t.Context(), localhost{}, []string{"http://127.0.0.1:42012/x"}, t.TempDir()); err == nil {
		t.Error("CurlMany does not report a failed transfer")
	}
}
