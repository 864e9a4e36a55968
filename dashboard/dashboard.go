package dashboard

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"time"
)

// Path is below which the page stands.
const Path = "/ui/"

//go:embed dist
var dist embed.FS

// policy lets the page load and ask nothing but its own server, run nothing but
// its own files, and be part of no other page.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// types does not ask the system, which may think otherwise.
var types = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
}

// file is one built file, ready to be sent.
type file struct {
	content           []byte
	contentType, etag string
}

// Handler serves the page below Path. Browsers ask each time whether a file has
// changed; its hash tells.
func Handler() http.Handler {
	files, err := load()
	if err != nil {
		panic("dashboard: the embedded files cannot be read: " + err.Error()) // go:embed would have failed
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := r.URL.Path
		if name == Path {
			name += "index.html"
		}
		f, ok := files[name]
		if !ok {
			http.NotFound(w, r)
			return
		}
		h := w.Header()
		h.Set("Content-Type", f.contentType)
		h.Set("ETag", f.etag)
		h.Set("Cache-Control", "no-cache")
		h.Set("Content-Security-Policy", policy)
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Content-Type-Options", "nosniff")
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(f.content))
	})
}

// load reads the built files, by the path at which they are served.
func load() (map[string]file, error) {
	files := map[string]file{}
	err := fs.WalkDir(dist, "dist", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := dist.ReadFile(name)
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		hash := sha256.Sum256(content)
		files[Path+name[len("dist/"):]] = file{
			content: content, contentType: types[path.Ext(name)],
			etag: `"` + base64.RawURLEncoding.EncodeToString(hash[:12]) + `"`,
		}
		return nil
	})
	return files, err
}
