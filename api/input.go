package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sluice-net/sluice/internal/jsonlimit"
)

// jsonFormat reads bodies as the OpenAPI document describes them. It differs from encoding/json and
// huma in two points: it refuses null, which they take for a missing value, and accepts 3.0 as a whole
// number.
var jsonFormat = huma.Format{Marshal: huma.DefaultJSONFormat.Marshal, Unmarshal: unmarshal}

func unmarshal(data []byte, v any) error {
	if err := jsonlimit.Default.Check(data); err != nil {
		return fmt.Errorf("the body has %w", err)
	}
	if err := json.Unmarshal(data, new(json.RawMessage)); err != nil {
		return err // the error names the position in the whole body
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var tree any
	if err := d.Decode(&tree); err != nil {
		return err
	}
	tree, changed, null := normalise(tree)
	if null != nil {
		return null
	}
	if changed {
		var err error
		if data, err = json.Marshal(tree); err != nil {
			return err
		}
	}
	return json.Unmarshal(data, v)
}

// nullError reports a null value. normalise extends the path on its way back from the value to the
// whole body, so that no paths are made for a body without a null value.
type nullError struct{ path string }

func (e *nullError) Error() string {
	return fmt.Sprintf("body%s is null: leave out what is not to be set", e.path)
}

// normalise refuses null and removes the fraction of whole numbers. changed reports whether it
// has changed a number.
func normalise(v any) (_ any, changed bool, err *nullError) {
	switch v := v.(type) {
	case nil:
		return nil, false, &nullError{}
	case json.Number:
		whole, ok := wholeNumber(v.String())
		return json.Number(whole), ok, nil
	case []any:
		for i := range v {
			var c bool
			if v[i], c, err = normalise(v[i]); err != nil {
				err.path = fmt.Sprintf("[%d]%s", i, err.path)
				return nil, false, err
			}
			changed = changed || c
		}
	case map[string]any:
		for key := range v {
			var c bool
			if v[key], c, err = normalise(v[key]); err != nil {
				err.path = "." + key + err.path
				return nil, false, err
			}
			changed = changed || c
		}
	}
	return v, changed, nil
}

// wholeNumber rewrites numbers like 3.0 and 1e3 as 3 and 1000.
func wholeNumber(text string) (_ string, changed bool) {
	if !strings.ContainsAny(text, ".eE") {
		return text, false
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > maxExactInt {
		return text, false
	}
	return strconv.FormatInt(int64(f), 10), true
}

// checkQuery refuses queries that huma would accept: a query that cannot be parsed, a parameter that
// is given twice, and a parameter without the value that it needs.
func (a *API) checkQuery(ctx huma.Context, next func(huma.Context)) {
	u := ctx.URL()
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		a.refuseQuery(ctx, &huma.ErrorDetail{Location: "query", Value: u.RawQuery, Message: "a query with its special characters written as %XX: " + err.Error()})
		return
	}
	var wrong []error
	for _, p := range ctx.Operation().Parameters {
		if p.In == "query" {
			wrong = append(wrong, a.checkParameter(p, query[p.Name])...)
		}
	}
	if len(wrong) > 0 {
		a.refuseQuery(ctx, wrong...)
		return
	}
	next(ctx)
}

func (a *API) refuseQuery(ctx huma.Context, wrong ...error) {
	_ = huma.WriteErr(a.huma, ctx, http.StatusUnprocessableEntity, "validation failed", wrong...) // the client is gone if this fails
}

func (a *API) checkParameter(p *huma.Param, given []string) []error {
	switch {
	case len(given) > 1 && (p.Explode == nil || !*p.Explode):
		return []error{&huma.ErrorDetail{Location: "query." + p.Name, Value: given, Message: "the parameter once"}}
	case len(given) != 1 || given[0] != "":
		return nil
	}
	if p.Schema.Type == huma.TypeArray {
		return nil // an empty list
	}
	at, result := huma.NewPathBuffer(nil, 0), &huma.ValidateResult{}
	at.Push("query")
	at.Push(p.Name)
	huma.Validate(a.huma.OpenAPI().Components.Schemas, p.Schema, at, huma.ModeWriteToServer, "", result)
	return result.Errors
}
