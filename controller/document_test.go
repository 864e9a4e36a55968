package controller

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sluice-net/sluice/services"
)

var pathParameter = regexp.MustCompile(`\{[^}]*\}`)

// TestRefusalsAreDocumented checks that every operation documents how it may be refused before the
// services are ready, and answers as documented.
func TestRefusalsAreDocumented(t *testing.T) {
	r := run(t, testConfig(t, "memory"))
	r.awaitReady(t)
	handler := r.api.Handler()
	operations := 0
	for path, item := range r.api.Huma().OpenAPI().Paths {
		for _, op := range []*huma.Operation{item.Get, item.Put, item.Post, item.Patch, item.Delete} {
			if op == nil {
				continue
			}
			operations++
			d := documented{op, handler, pathParameter.ReplaceAllString(path, "00000000000000a1"), r.token}
			d.has(t, 401, 403, 422, 500, 503)
			d.answers(t, 401, "", "", "", "")
			d.answers(t, 422, r.token, "?nothing=1", "", "")
			d.answers(t, 405, r.token, "", "TRACE", "")
			if op.RequestBody == nil {
				continue
			}
			d.has(t, 400, 408, 413, 415)
			d.answers(t, 400, r.token, "", "", `{`)
			d.answers(t, 400, r.token, "", "", ``)
			d.answers(t, 413, r.token, "", "", `"`+strings.Repeat("a", 2<<20)+`"`)
			d.answers(t, 415, r.token, "", "", `<xml/>`)
		}
	}
	if operations < 70 {
		t.Errorf("%d operations, want those of all services", operations)
	}
}

// awaitReady waits until the services have read their store.
func (r *running) awaitReady(t *testing.T) {
	t.Helper()
	eventually(t, "the services have loaded", func() bool {
		status, _, _ := r.ask(t, http.MethodGet, "/readyz", "")
		return status == http.StatusOK
	})
}

// documented is an operation under test.
type documented struct {
	op                *huma.Operation
	handler           http.Handler
	path, credentials string
}

func (d *documented) has(t *testing.T, codes ...int) {
	t.Helper()
	for _, code := range codes {
		r := d.op.Responses[strconv.Itoa(code)]
		if r == nil || r.Content["application/problem+json"] == nil {
			t.Errorf("%s does not say that it may be refused with %d and a problem document", d.op.OperationID, code)
		}
	}
}

// answers sends a request and checks that the answer is the expected one and is documented.
func (d *documented) answers(t *testing.T, want int, token, query, method, body string) {
	t.Helper()
	if method == "" {
		method = d.op.Method
	}
	req := httptest.NewRequestWithContext(t.Context(), method, d.path+query, strings.NewReader(body))
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	req.Header.Set("Content-Type", "application/json")
	if strings.HasPrefix(body, "<") {
		req.Header.Set("Content-Type", "application/xml")
	}
	w := httptest.NewRecorder()
	d.handler.ServeHTTP(w, req)
	if w.Code != want || w.Header().Get("Content-Type") != "application/problem+json" {
		t.Errorf("%s %s%s: %d %s, want %d: %.300s", method, d.path, query, w.Code, w.Header().Get("Content-Type"), want, w.Body)
	}
	switch response := d.op.Responses[strconv.Itoa(w.Code)]; {
	case w.Code == http.StatusMethodNotAllowed: // of the path, not of the operation
		if allow := strings.Split(w.Header().Get("Allow"), ", "); !slices.Contains(allow, d.op.Method) {
			t.Errorf("%s: Allow %q lacks %s", d.path, allow, d.op.Method)
		}
	case response == nil:
		t.Errorf("%s answers %d and does not say so", d.op.OperationID, w.Code)
	default:
		for name := range response.Headers {
			if name == "WWW-Authenticate" && w.Header().Get(name) == "" {
				t.Errorf("%s: %d without %s", d.op.OperationID, w.Code, name)
			}
		}
	}
}

// TestDocumentPromisesLists checks that a list in an answer is never null, and that the document
// says so.
func TestDocumentPromisesLists(t *testing.T) {
	text, err := OpenAPI(services.Definitions())
	if err != nil {
		t.Fatal(err)
	}
	if i := strings.Index(text, `- "null"`); i >= 0 {
		t.Errorf("something may be null: %s", text[max(0, i-300):i+10])
	}
	r := run(t, testConfig(t, "memory"))
	r.awaitReady(t)
	if status, _, body := r.ask(t, http.MethodPost, "/api/v1/network/diagnosis", "{}"); status != http.StatusAccepted { // so that there is one
		t.Errorf("an examination: %d %.200s", status, body)
	}
	for path, item := range r.api.Huma().OpenAPI().Paths {
		if item.Get == nil || strings.Contains(path, "{") || item.Get.OperationID == "events" || len(item.Get.Parameters) > 0 && item.Get.Parameters[0].Required {
			continue
		}
		status, _, body := r.ask(t, http.MethodGet, path, "")
		var v any
		if err := json.Unmarshal([]byte(body), &v); status != http.StatusOK || err != nil {
			t.Errorf("%s: %d %.200s", path, status, body)
		}
		if path != "/api/v1/config" && strings.Contains(body, "null") {
			t.Errorf("%s answers with null: %.300s", path, body)
		}
	}
}
