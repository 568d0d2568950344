//! What each method of the authority's API is, as far as an administrator's proof of a factor is concerned.

/// How much depends on a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    /// It changes nothing.
    Reading,
    /// A person's own, proven in another way, the cluster's own machinery, or what takes rights away in an emergency: it does not wait.
    Ordinary,
    /// It gives rights or could: an administrator proves a factor for it.
    Dangerous,
    /// What the document is that the call names says it.
    Documents,
}

/// The methods, each with what it is. A test reads the `.proto` files and fails for a method that has no line here, and until it has
/// one the method is dangerous.
pub const METHODS: &[(&str, Weight)] = {
    use Weight::{Dangerous, Documents, Ordinary, Reading};
    &[
        // Without a certificate: nothing that a thief of one could use.
        ("Login.Ping", Reading),
        ("Login.LoginWithPassword", Ordinary),
        ("Login.BeginBrowserLogin", Ordinary),
        ("Login.FinishBrowserLogin", Ordinary),
        ("Login.BeginKeyLogin", Ordinary),
        ("Login.FinishKeyLogin", Ordinary),
        ("Login.BeginInvite", Ordinary),
        ("Login.FinishInvite", Ordinary),
        ("Login.Join", Ordinary),
        ("Login.DeviceChallenge", Ordinary),
        // Hosts, which have no factors.
        ("Fleet.RenewHost", Ordinary),
        ("Fleet.Watch", Reading),
        ("Fleet.Heartbeat", Ordinary),
        ("Fleet.EmitEvents", Ordinary),
        ("Fleet.ReportClients", Ordinary),
        ("Fleet.RecordingOffset", Reading),
        ("Fleet.UploadRecording", Ordinary),
        ("Fleet.ReportSessions", Ordinary),
        ("Fleet.CertifyTarget", Ordinary),
        ("Fleet.CertifyForTarget", Ordinary),
        ("Databases.CertifyDatabaseUser", Ordinary),
        ("Databases.PermitDatabaseSession", Ordinary),
        ("Provisioning.AnswerScim", Ordinary),
        ("Rotation.Confirm", Ordinary),
        // What there is.
        ("Logins.List", Reading),
        ("Logins.ListOf", Reading),
        ("Logins.TestRules", Reading),
        ("Cluster.GetStatus", Reading),
        ("Cluster.ListNodes", Reading),
        ("Cluster.ExplainAccess", Reading),
        ("Cluster.ListRecordings", Reading),
        ("Cluster.PlayRecording", Reading),
        ("Catalogue.List", Reading),
        ("Catalogue.ExplainAccess", Reading),
        ("Databases.ListDatabases", Reading),
        ("Databases.ExplainDatabaseAccess", Reading),
        ("Sessions.ListSessions", Reading),
        ("Certificates.ListCertificates", Reading),
        ("Certificates.GetCertificate", Reading),
        ("Certificates.GetIssuance", Reading),
        ("Suites.ListSuites", Reading),
        ("Suites.PreflightSuite", Reading),
        ("Suites.ListClients", Reading),
        ("Sso.ListConnectors", Reading),
        ("Sso.GetConnectorKeys", Reading),
        ("Sso.AwaitTest", Reading),
        ("Provisioning.ListScimTokens", Reading),
        ("Rotation.ListCas", Reading),
        ("Rotation.Follow", Reading),
        ("Admin.GetResource", Reading),
        ("Admin.ListResources", Reading),
        ("Admin.ExportCa", Reading),
        ("Admin.SearchEvents", Reading),
        ("Admin.VerifyAudit", Reading),
        // Administration.
        ("Admin.CreateResource", Documents),
        ("Admin.UpdateResource", Documents),
        ("Admin.DeleteResource", Documents),
        ("Admin.CreateUser", Dangerous),
        ("Admin.ResetUser", Dangerous),
        ("Admin.LinkUser", Dangerous),
        ("Admin.UnlinkUser", Dangerous),
        ("Admin.CreateToken", Dangerous),
        ("Certificates.SignCertificate", Dangerous),
        ("Rotation.RotateCa", Dangerous),
        ("Suites.SetSuite", Dangerous),
        ("Provisioning.AddScimToken", Dangerous),
        ("Provisioning.RemoveScimToken", Dangerous),
        // The authority calls an address of the caller's choice.
        ("Sso.BeginTest", Dangerous),
        // They take away what others could need as evidence: a hold that is released lets a recording go.
        ("Sessions.RemoveRecording", Dangerous),
        ("Sessions.HoldRecording", Dangerous),
        // They take rights away, at once.
        ("Logins.End", Ordinary),
        ("Logins.EndOf", Ordinary),
        ("Sessions.EndSession", Ordinary),
        ("Certificates.DenyCertificate", Ordinary),
        // Devices: whose one is says who may log in from it. A person's own waits for an administrator, or has a token.
        ("Devices.ListOwn", Reading),
        ("Devices.List", Reading),
        ("Devices.Enroll", Ordinary),
        ("Devices.AddToken", Dangerous),
        ("Devices.Assign", Dangerous),
        ("Devices.Remove", Dangerous),
        // A person's own factors: each change has a proof of its own.
        ("Factors.List", Reading),
        ("Factors.AwaitChallenge", Reading),
        ("Factors.BeginProof", Ordinary),
        ("Factors.BeginAdd", Ordinary),
        ("Factors.FinishAdd", Ordinary),
        ("Factors.Remove", Ordinary),
        ("Factors.MakeRecoveryCodes", Ordinary),
        ("Factors.ProveAdministrator", Ordinary),
        ("Factors.ChangePassword", Ordinary),
        // A second factor for sessions: a proof of its own.
        ("SessionFactors.Await", Reading),
        ("SessionFactors.AwaitFor", Reading),
        ("SessionFactors.Check", Reading),
        ("SessionFactors.Begin", Ordinary),
        ("SessionFactors.Prove", Ordinary),
        ("SessionFactors.Certify", Ordinary),
        ("SessionFactors.BeginFor", Ordinary),
        ("SessionFactors.ProveFor", Ordinary),
        // Browsers at a proxy's pages, each with a proof of its own.
        ("Web.DescribeLogin", Reading),
        ("Web.BeginLoginPasskey", Ordinary),
        ("Web.FinishLoginPasskey", Ordinary),
        ("Web.ProveLoginPassword", Ordinary),
        ("Web.BeginLoginSso", Ordinary),
        ("Web.FinishLoginSso", Ordinary),
        ("Web.SsoLogout", Ordinary),
        ("Web.RefuseLogin", Ordinary),
        ("Web.DescribeApproval", Reading),
        ("Web.BeginApprovalPasskey", Ordinary),
        ("Web.FinishApprovalPasskey", Ordinary),
        ("Web.ProveApprovalOtp", Ordinary),
        ("Web.RefuseApproval", Ordinary),
        ("Web.DescribeFactors", Reading),
        ("Web.ListFactors", Reading),
        ("Web.BeginFactorRemoval", Ordinary),
        ("Web.FinishFactorRemoval", Ordinary),
        ("Web.DescribeEnrolment", Reading),
        ("Web.BeginEnrolment", Ordinary),
        ("Web.FinishEnrolment", Ordinary),
        ("Web.RefuseEnrolment", Ordinary),
        ("Web.DescribeInvite", Reading),
        ("Web.BeginInvitePasskey", Ordinary),
        ("Web.FinishInvitePasskey", Ordinary),
    ]
};

/// What a method is, by its name as `Service.Method`.
#[must_use]
pub fn of_method(method: &str) -> Weight {
    METHODS.iter().find(|(name, _)| *name == method).map_or(Weight::Dangerous, |(_, weight)| *weight)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    /// The API that the authority serves; `transport.proto` is the proxy's.
    fn protos() -> String {
        let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/proto/sallyport/v1")).unwrap();
        let files = files.map(|file| file.unwrap().path()).filter(|path| !path.ends_with("transport.proto"));
        files.map(|path| std::fs::read_to_string(path).unwrap()).collect()
    }

    fn methods() -> BTreeSet<String> {
        let protos = protos();
        let (mut service, mut methods) = ("", BTreeSet::new());
        for line in protos.lines().map(str::trim) {
            if let Some(rest) = line.strip_prefix("service ") {
                service = rest.trim_end_matches(['{', ' ']);
            } else if let Some((name, _)) = line.strip_prefix("rpc ").and_then(|rest| rest.split_once('(')) {
                methods.insert(format!("{service}.{name}"));
            }
        }
        methods
    }

    /// A new method is sorted here first. What gives rights, or lets a thief of an administrator's certificate keep any, is dangerous.
    #[test]
    fn every_method_is_read_ordinary_or_dangerous_and_none_is_unsorted() {
        let table: BTreeMap<&str, Weight> = METHODS.iter().copied().collect();
        assert_eq!(table.len(), METHODS.len(), "a method stands in the table twice");
        let sorted: BTreeSet<String> = table.keys().map(|name| (*name).to_owned()).collect();
        assert_eq!(sorted, methods());
        assert_eq!(of_method("Admin.GrantEverything"), Weight::Dangerous, "what is not sorted is");
    }
}
