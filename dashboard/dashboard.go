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

// Path is the path prefix of the page and its files.
const Path = "/ui/"

//go:embed dist
var dist embed.FS

// policy is the page's Content-Security-Policy. The page may load from and connect
// to its own server only, run only its own files, and not be embedded in another page.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// types holds the content types of the files, by extension, so that they do not depend
// on the system's configuration.
var types = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
}

// file is one built file with the headers with which it is sent.
type file struct {
	content           []byte
	contentType, etag string
}

// Handler returns the handler that serves the page below Path. Browsers ask at each use
// whether a file has changed, which they detect by the file's hash (ETag).
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

// load returns the built files, by the path at which they are served.
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
