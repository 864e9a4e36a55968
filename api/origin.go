package api

// Origins of what may be defined both in the configuration file and by the API. It has
// one of them: what stands in the file is changed there alone, what was defined by the
// API by the API alone.
const (
	OriginFile = "file"
	OriginAPI  = "api"
)

// Origin is OriginFile for what stands in the configuration file, else OriginAPI.
func Origin(configured bool) string {
	if configured {
		return OriginFile
	}
	return OriginAPI
}

// Configured refuses to change or remove something that stands in the configuration
// file, under a key like handover.classes.cars: 409.
func Configured(location string, value any, key string) error {
	return Conflict(location, value, "it stands in the configuration file, as "+key+": change it there, or take it out there, and restart the controller")
}
