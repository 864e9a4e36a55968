package api

import (
	"math"
	"slices"

	"github.com/danielgtaylor/huma/v2"
)

// Format is how a text of the API is written. A field has it by its tag, as in
// `format:"mac"`; the pattern in the OpenAPI document, by which requests are checked,
// follows.
type Format struct {
	// Pattern is what the whole text must match, in what RE2 and ECMAScript share.
	Pattern string
	// Want says to people what would be right.
	Want string
}

const (
	hex4   = `[0-9A-Fa-f]{1,4}`
	octet  = `(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])`
	ipv4   = `(?:` + octet + `\.){3}` + octet
	bits32 = `/(?:3[0-2]|[12]?[0-9])`
	ipv6   = `(?:(?:` + hex4 + `:){7}` + hex4 +
		`|(?:` + hex4 + `:){1,7}:` +
		`|(?:` + hex4 + `:){1,6}:` + hex4 +
		`|(?:` + hex4 + `:){1,5}(?::` + hex4 + `){2}` +
		`|(?:` + hex4 + `:){1,4}(?::` + hex4 + `){3}` +
		`|(?:` + hex4 + `:){1,3}(?::` + hex4 + `){4}` +
		`|(?:` + hex4 + `:){1,2}(?::` + hex4 + `){5}` +
		`|` + hex4 + `:(?::` + hex4 + `){6}` +
		`|::(?:` + hex4 + `(?::` + hex4 + `){0,6})?)`
	bits128    = `/(?:12[0-8]|1[01][0-9]|[1-9]?[0-9])`
	hex2       = `[0-9A-Fa-f]{2}`
	mac        = `(?:` + hex2 + `(?::` + hex2 + `){5}|` + hex2 + `(?:-` + hex2 + `){5})`
	dpid       = `(?:(?:0x)?[0-9A-Fa-f]{16}|` + hex2 + `(?::` + hex2 + `){7})`
	switchName = `(?:[0-9A-Za-z][0-9A-Za-z._-]{0,62}|` + hex2 + `(?::` + hex2 + `){7})`
	portNumber = `[0-9]{1,9}`
	tcpPort    = `(?:6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5][0-9]{4}|[1-9][0-9]{0,3})`
	leapYear   = `(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)`
	date       = `(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|` + leapYear + `-02-29)`
	clock      = `(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])`
	duration   = `(?:[0-9]{1,6}(?:\.[0-9]{1,9})?(?:ns|us|µs|ms|s|m|h))+`
)

// Formats are those that fields of the API may name. Where a field may be left out, the
// empty text says the same, unless the field has a minLength.
var Formats = map[string]Format{
	"ipv4-address": {ipv4, "an IPv4 address like 192.0.2.1"},
	"ip-address":   {ipv4 + `|` + ipv6, "an IP address like 192.0.2.1 or 2001:db8::1"},
	"ipv4-prefix":  {ipv4 + bits32, "an IPv4 prefix like 10.8.0.0/24"},
	"ip-prefix": {
		`(?:` + ipv4 + `(?:` + bits32 + `)?|` + ipv6 + `(?:` + bits128 + `)?)`,
		"an address or a prefix like 10.0.0.0/24, 10.1.0.7 or 2001:db8::/64",
	},
	"mac":         {mac, "a MAC address like 02:00:00:00:00:01"},
	"switch":      {switchName, "the 16 hexadecimal digits of a switch, as in 00000000000000a1, or its name in the configuration"},
	"dpid":        {dpid, "a switch, by its 16 hexadecimal digits, as in 00000000000000a1"},
	"dpid-port":   {dpid + `/[1-9][0-9]{0,8}`, "a switch port like 00000000000000a1/3"},
	"switch-port": {switchName + `/` + portNumber, "SWITCH/PORT, as in 00000000000000a1/3"},
	"place":       {ipv4 + `|` + ipv6 + `|` + mac + `|` + switchName + `[/:]` + portNumber, "a known host's IP or MAC address, or SWITCH/PORT, as in 00000000000000a1/3"},
	"time-or-age": {date + `T` + clock + `|` + duration, "a time, as in 2026-01-31T12:00:00Z, or how long ago, as in 90s or 10m"},
	"go-duration": {duration, "a duration with its unit, like 200ms, 10s or 1h30m"},
	"event-id":    {`[0-9]{1,19}`, "an identifier, which is a whole number, or 0"},
	"byte":        {`(?:[0-9A-Za-z+/]{4})*(?:[0-9A-Za-z+/]{2}==|[0-9A-Za-z+/]{3}=)?`, "base64"},
	"port-range":  {tcpPort + `(?:-` + tcpPort + `)?`, "a port or a range of ports like 443 or 8000-8099"},
}

// unsigned are the formats of numbers that have no sign: huma writes those with one.
var unsigned = map[string]string{"int32": "uint32", "int64": "uint64"}

// describeFormats gives the schemas of an operation, and those that they refer to, the patterns
// of their formats.
func (a *API) describeFormats(doc *huma.OpenAPI, op *huma.Operation) {
	for _, p := range op.Parameters {
		complete(p.Schema, p.Required)
		bound(doc.Components.Schemas, p.Schema)
	}
	for _, s := range doc.Components.Schemas.Map() {
		complete(s, true)
	}
	if op.RequestBody != nil {
		for _, c := range op.RequestBody.Content {
			complete(c.Schema, true)
			bound(doc.Components.Schemas, c.Schema)
		}
	}
	for _, r := range op.Responses {
		for _, c := range r.Content {
			complete(c.Schema, true)
		}
	}
}

// complete writes a schema's pattern, and those of what is in it. Fields that have one
// already keep it.
func complete(s *huma.Schema, required bool) {
	if s == nil {
		return
	}
	if f, ok := Formats[s.Format]; ok && s.Pattern == "" {
		s.Pattern, s.PatternDescription = `^(?:`+f.Pattern+`)$`, f.Want
		if !required && s.MinLength == nil {
			s.Pattern = `^(?:` + f.Pattern + `)?$`
		}
		s.PrecomputeMessages()
	}
	if u, ok := unsigned[s.Format]; ok && s.Minimum != nil && *s.Minimum == 0 {
		s.Format = u
	}
	complete(s.Items, true)
	for name, p := range s.Properties {
		complete(p, slices.Contains(s.Required, name))
	}
	if values, ok := s.AdditionalProperties.(*huma.Schema); ok {
		complete(values, true)
	}
}

// exact is up to where every whole number has a float64 of its own, and all programs
// read the same one (RFC 8259, section 6).
const exact = 1<<53 - 1

// limits are the least and the largest whole numbers of a format.
var limits = map[string][2]float64{
	"int32":  {math.MinInt32, math.MaxInt32},
	"uint32": {0, math.MaxUint32},
	"int64":  {-exact, exact},
	"uint64": {0, exact},
}

// bound writes into the schema of an input, and those that it refers to, what its whole
// numbers are bounded by at least.
func bound(all huma.Registry, s *huma.Schema) {
	if s != nil && s.Ref != "" {
		s = all.SchemaFromRef(s.Ref)
	}
	if s == nil {
		return
	}
	if l, ok := limits[s.Format]; ok && s.Type == huma.TypeInteger {
		if s.Minimum == nil {
			s.Minimum = &l[0]
		}
		if s.Maximum == nil {
			s.Maximum = &l[1]
		}
		s.PrecomputeMessages()
	}
	bound(all, s.Items)
	for _, p := range s.Properties {
		bound(all, p)
	}
}
