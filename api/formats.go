package api

import (
	"math"
	"slices"

	"github.com/danielgtaylor/huma/v2"
)

// Format is the syntax of a text in the API. A field names it in its tag, as in `format:"mac"`.
// The OpenAPI document gets the pattern, by which requests are validated.
type Format struct {
	// Pattern must match the whole text. It uses the common syntax of RE2 and ECMAScript.
	Pattern string
	// Want tells people what would be right.
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

// Formats holds the formats that fields of the API may name. For an optional field the empty
// text means the same as a missing one, unless the field has a minLength.
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

// unsignedFormats maps signed integer formats, which huma uses for all integers, to unsigned
// ones.
var unsignedFormats = map[string]string{"int32": "uint32", "int64": "uint64"}

// describeFormats sets the patterns of formats in an operation's schemas and in the schemas that they
// refer to. It also sets the bounds of integers in the operation's inputs.
func (a *API) describeFormats(doc *huma.OpenAPI, op *huma.Operation) {
	for _, p := range op.Parameters {
		setPatterns(p.Schema, p.Required)
		setIntegerBounds(doc.Components.Schemas, p.Schema)
	}
	for _, s := range doc.Components.Schemas.Map() {
		setPatterns(s, true)
	}
	if op.RequestBody != nil {
		for _, c := range op.RequestBody.Content {
			setPatterns(c.Schema, true)
			setIntegerBounds(doc.Components.Schemas, c.Schema)
		}
	}
	for _, r := range op.Responses {
		for _, c := range r.Content {
			setPatterns(c.Schema, true)
		}
	}
}

// setPatterns sets the pattern of a schema and of the schemas in it. Existing patterns stay.
func setPatterns(s *huma.Schema, required bool) {
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
	if u, ok := unsignedFormats[s.Format]; ok && s.Minimum != nil && *s.Minimum == 0 {
		s.Format = u
	}
	setPatterns(s.Items, true)
	for name, p := range s.Properties {
		setPatterns(p, slices.Contains(s.Required, name))
	}
	if values, ok := s.AdditionalProperties.(*huma.Schema); ok {
		setPatterns(values, true)
	}
}

// maxExactInt is the largest whole number up to which all whole numbers are exact in a float64,
// so that all programs read the same number (RFC 8259, section 6).
const maxExactInt = 1<<53 - 1

// integerLimits holds the least and the largest whole numbers of each format.
var integerLimits = map[string][2]float64{
	"int32":  {math.MinInt32, math.MaxInt32},
	"uint32": {0, math.MaxUint32},
	"int64":  {-maxExactInt, maxExactInt},
	"uint64": {0, maxExactInt},
}

// setIntegerBounds adds minimum and maximum to every integer of an input's schema and of the
// schemas it refers to.
func setIntegerBounds(all huma.Registry, s *huma.Schema) {
	if s != nil && s.Ref != "" {
		s = all.SchemaFromRef(s.Ref)
	}
	if s == nil {
		return
	}
	if l, ok := integerLimits[s.Format]; ok && s.Type == huma.TypeInteger {
		if s.Minimum == nil {
			s.Minimum = &l[0]
		}
		if s.Maximum == nil {
			s.Maximum = &l[1]
		}
		s.PrecomputeMessages()
	}
	setIntegerBounds(all, s.Items)
	for _, p := range s.Properties {
		setIntegerBounds(all, p)
	}
}
