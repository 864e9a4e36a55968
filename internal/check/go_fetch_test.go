package check

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

const fakeGo = "#!/bin/sh\necho go version go9.9.9\n"

// goServer is what a mirror and a module proxy have of Go 9.9.9, and their hashes.
type goServer struct {
	archive, module         []byte
	archiveHash, moduleHash string
}

func newGoServer(t *testing.T) goServer {
	t.Helper()
	var s goServer
	var archive bytes.Buffer
	zipped := gzip.NewWriter(&archive)
	tarred := tar.NewWriter(zipped)
	if err := tarred.WriteHeader(&tar.Header{Name: "go/bin/go", Mode: 0o755, Size: int64(len(fakeGo))}); err != nil {
		t.Fatal(err)
	}
	if _, err := tarred.Write([]byte(fakeGo)); err != nil {
		t.Fatal(err)
	}
	if err := tarred.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zipped.Close(); err != nil {
		t.Fatal(err)
	}
	s.archive = archive.Bytes()
	s.archiveHash = fmt.Sprintf("%x", sha256.Sum256(s.archive))

	var module, list bytes.Buffer
	w := zip.NewWriter(&module)
	root := "golang.org/toolchain@v0.0.1-go9.9.9.linux-" + runtime.GOARCH
	for _, f := range [][2]string{{"/bin/go", fakeGo}, {"/pkg/tool/linux/link", "link"}, {"/src/_go.mod", "module std\n"}} {
		file, err := w.Create(root + f[0])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.Write([]byte(f[1])); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&list, "%x  %s\n", sha256.Sum256([]byte(f[1])), root+f[0])
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	s.module = module.Bytes()
	sum := sha256.Sum256(list.Bytes())
	s.moduleHash = "h1:" + base64.StdEncoding.EncodeToString(sum[:])
	return s
}

// fetchGo runs the script in a tree of its own and returns that, what it said, and
// whether it failed.
func (s goServer) fetchGo(t *testing.T, pins, proxy string) (tree, said string, err error) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := "go9.9.9.linux-" + runtime.GOARCH
		switch r.URL.Path {
		case "/dl/" + name + ".tar.gz":
			_, _ = w.Write(s.archive)
		case "/proxy/golang.org/toolchain/@v/v0.0.1-" + name + ".zip":
			_, _ = w.Write(s.module)
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	tree = t.TempDir()
	if err := os.Mkdir(filepath.Join(tree, "scripts"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"go.sh", "deps.sh"} {
		b, err := os.ReadFile(filepath.Join(repositoryRoot(t), "scripts", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(tree, "scripts", name), b, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"go.mod": "module example\n\ngo 9.9.9\n", "scripts/go.pins": pins} {
		if err := os.WriteFile(filepath.Join(tree, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(tree, "scripts/go.sh"))
	if proxy != "off" {
		proxy = server.URL + "/proxy"
	}
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "GO_DL=" + server.URL + "/dl/", "GOPROXY=" + proxy + ",direct"}
	out, err := cmd.CombinedOutput()
	return tree, string(out), err
}

func (s goServer) pins() string {
	name := "go9.9.9.linux-" + runtime.GOARCH
	return fmt.Sprintf("# what is good\n%s.tar.gz %s\ngolang.org/toolchain@v0.0.1-%s %s\n", name, s.archiveHash, name, s.moduleHash)
}

// Go is taken from where it can be had, and never if it is not the one that is pinned.
func TestGoIsFetched(t *testing.T) {
	for _, tool := range []string{"curl", "unzip"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed; make deps installs it", tool)
		}
	}
	good := newGoServer(t)
	damaged := func(b []byte) []byte {
		b = slices.Clone(b)
		b[len(b)/3] ^= 1
		return b
	}
	for name, test := range map[string]struct {
		change func(*goServer)
		proxy  string
		says   []string // of a refusal
	}{
		"archive":           {change: func(*goServer) {}, proxy: "off"},
		"module":            {change: func(s *goServer) { s.archive = nil }},
		"module, not first": {change: func(s *goServer) { s.archive = damaged(s.archive) }},
		"damaged archive":   {change: func(s *goServer) { s.archive = damaged(s.archive) }, proxy: "off", says: []string{"tar.gz: its SHA-256", "GO_DL=URL"}},
		"both damaged":      {change: func(s *goServer) { s.archive, s.module = damaged(s.archive), damaged(s.module) }, says: []string{".tar.gz: its SHA-256", ".zip: its hash"}},
		"another module": {change: func(s *goServer) {
			s.archive, s.moduleHash = nil, "h1:"+base64.StdEncoding.EncodeToString(make([]byte, 32))
		}, says: []string{".zip: its hash"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := good
			test.change(&s)
			pins := good.pins()
			if s.moduleHash != good.moduleHash {
				pins = s.pins()
			}
			tree, said, err := s.fetchGo(t, pins, test.proxy)
			if left, _ := filepath.Glob(filepath.Join(tree, ".go-*")); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
			if test.says == nil {
				if err != nil {
					t.Fatalf("%v\n%s", err, said)
				}
				if out, err := exec.CommandContext(t.Context(), filepath.Join(tree, ".go/bin/go")).CombinedOutput(); err != nil || !strings.Contains(string(out), "go9.9.9") {
					t.Errorf("what was fetched: %v\n%s", err, out)
				}
				return
			}
			checkRefusal(t, tree, said, err, test.says...)
		})
	}
	t.Run("unknown machine", func(t *testing.T) {
		tree, said, err := good.fetchGo(t, "", "off")
		checkRefusal(t, tree, said, err, "no checksum for go9.9.9")
	})
}

// checkRefusal wants one line with the reasons, and no Go.
func checkRefusal(t *testing.T, tree, said string, err error, says ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("it was taken:\n%s", said)
	}
	lines := strings.Split(strings.TrimSpace(said), "\n")
	for _, want := range append(says, "https://go.dev/dl/") {
		if last := lines[len(lines)-1]; !strings.Contains(last, want) {
			t.Errorf("it says %q, want %q in it", last, want)
		}
	}
	if _, err := os.Stat(filepath.Join(tree, ".go")); err == nil {
		t.Error("what was refused is there")
	}
}

// A newer Go in go.mod needs its checksums.
func TestGoIsPinned(t *testing.T) {
	root := repositoryRoot(t)
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	_, version, _ := strings.Cut(string(mod), "\ngo ")
	version, _, _ = strings.Cut(version, "\n")
	pins, err := os.ReadFile(filepath.Join(root, "scripts/go.pins"))
	if err != nil {
		t.Fatal(err)
	}
	for _, architecture := range []string{"amd64", "arm64"} {
		name := "go" + version + ".linux-" + architecture
		for _, want := range []string{"\n" + name + ".tar.gz ", "\ngolang.org/toolchain@v0.0.1-" + name + " h1:"} {
			if !strings.Contains(string(pins), want) {
				t.Errorf("scripts/go.pins has no line with %q", want)
			}
		}
	}
}
