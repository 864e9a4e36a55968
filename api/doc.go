// Package api is the controller's REST interface: a huma server under /api/v1 with its OpenAPI
// 3.1 document and viewer, authentication, problem documents (RFC 9457), the event stream,
// metrics and health. Start reading with api.go and serve.go.
//
// A service adds its operations in its Register method:
//
//	func (s *Service) Register(a *api.API) {
//		huma.Register(a.Huma(), huma.Operation{
//			OperationID: "sos-whitelist-add",
//			Method:      http.MethodPost,
//			Path:        api.Prefix + "/sos/whitelist",
//			Summary:     "Add a whitelist entry",
//			Tags:        []string{"sos"},
//		}, s.addWhitelistEntry)
//	}
//
// Operations need not authenticate requests: every request is authenticated before it reaches an
// operation. Operations return errors made by Invalid, NotFound, Conflict, Refused and
// Unavailable, so that every refusal names the field, the value and what would be right. The tag
// format, with a name from Formats, describes the syntax of a text.
package api
