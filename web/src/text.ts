// Every word that the pages say.

export const text = {
  product: 'Sallyport',
  loading: 'Asking the cluster about this link…',
  working: {
    passkey: 'Waiting for your passkey…',
    create: 'Waiting for the new passkey…',
    password: 'Checking your password…',
    otp: 'Checking your code…',
    refuse: 'Refusing…',
    sso: 'Going to your identity provider…',
    returned: 'Checking the answer of your identity provider…',
  },
  close: 'You can close this page.',
  again: 'Try again',
  reload: 'Load this page again',
  copy: 'Copy',
  copied: 'Copied',
  notCopied: 'Select the command and copy it',
  untilTime: (time: string) => `Good until ${time}`,
  facts: {
    host: 'Machine',
    hostNote: 'the name it gives itself; it is not checked',
    address: 'From address',
    time: 'Asked at',
    user: 'For',
  },
  missing: {
    title: 'This link is not complete',
    lead: 'The part after # is missing, and it says what is asked. Open the whole address that the program printed, or start again in your terminal.',
  },
  unknown: {
    title: 'There is no such request',
    lead: 'The link has expired, was answered already, or was not copied whole. Start again in your terminal to get a new one.',
  },
  expired: {
    title: 'This request has expired',
    lead: 'Nothing was done. Start again in your terminal to get a new link.',
  },
  used: {
    title: 'This request was answered already',
    lead: 'Each link works once. Start again in your terminal if you need another.',
  },
  refused: {
    title: 'You refused this request',
    lead: 'Nothing was done, and the link no longer works.',
    advice:
      'If you did not start it yourself, tell an administrator of your cluster: another person may be trying to get in as you.',
  },
  trouble: {
    title: 'This did not work',
  },
  login: {
    title: (cluster: string) => `Log in to ${cluster}`,
    lead: 'A program on this machine asks to log in. If you go on, it gets your certificates and can open sessions as you until they expire.',
    leadHeadless:
      'A program on another machine asks to log in as you. If you go on, that machine gets your certificates and can open sessions as you until they expire.',
    leadElsewhere:
      'A program asks to log in as you, and it reaches the cluster from another address than this browser. If you go on, it gets your certificates and can open sessions as you until they expire.',
    leadTest:
      'An administrator tries a connector of single sign-on. What the provider says of you is shown in the terminal where the test was started, and nothing of it is kept.',
    sso: (title: string) => `Continue with ${title}`,
    badProvider:
      'The answer would have sent you to an address without encryption, so it was not followed. Tell an administrator of your cluster.',
    warning: 'Go on only if you started this login yourself, just now, on a machine that you know.',
    warningMore: 'No one who helps you ever needs you to open such a link or to type such a code for them.',
    code: 'Code that the program shows',
    codeHint: 'Type it from the terminal where you started the login.',
    passkey: 'Continue with a passkey',
    password: 'Use a password instead',
    or: 'or',
    user: 'User name',
    passwordField: 'Password',
    otp: 'One-time code',
    otpHint: 'Six digits from your authenticator app, or one of your recovery codes. Leave it empty if your account has none.',
    submit: 'Log in',
    refuse: 'I did not ask for this',
    returning: 'You are logged in',
    returningLead: 'Your browser goes back to the program that asked.',
    returningLink: 'Go back to the program',
    done: 'You are logged in',
    doneLead: (host: string) => `The program on ${host} goes on by itself within a few seconds.`,
    noWay:
      'This page cannot log you in: neither passkeys, passwords nor single sign-on are switched on for it. Ask an administrator of your cluster.',
    onlyPasskey: 'This cluster logs in by passkey on this page. Open the link in a browser that has them.',
    badRedirect:
      'The answer would have sent you to an address that is not on this machine, so it was not followed. Start again in your terminal, and tell an administrator.',
  },
  returned: {
    title: 'Coming back from your identity provider',
    done: 'You are done here',
    doneLead: 'The program that asked goes on by itself within a few seconds.',
    trouble: 'This did not work',
    again: 'Open the address that the program printed once more to choose another way, or start again in your terminal.',
  },
  approve: {
    titles: {
      'add-factor': 'Confirm a new factor',
      'remove-factor': 'Confirm the removal of a factor',
      'recovery-codes': 'Confirm new recovery codes',
      session: 'Confirm new sessions',
      administer: 'Confirm administration',
    } as Readonly<Record<string, string>>,
    otherTitle: 'Confirm a request',
    leads: {
      'add-factor':
        'A program asks to add a way to prove that you are you. What is added counts as you from then on.',
      'remove-factor': 'A program asks to remove one of your factors. It no longer counts as you from then on.',
      'recovery-codes':
        'A program asks for ten new recovery codes. Each of them can stand in once for your other factors, and the former codes stop working.',
      session: 'A program wants to open the sessions that are listed here, as you.',
      administer:
        'A program wants to change the cluster with your rights. For five minutes, what it does from there is not asked for again.',
    } as Readonly<Record<string, string>>,
    otherLead: 'A program asks you to prove that you are you. What it asks for is listed here.',
    warning: 'Go on only if you started this yourself, just now, in your own terminal.',
    codeHint: 'Type it from the terminal where you started this.',
    passkey: 'Approve with a passkey',
    again: 'You have no factor yet, so your identity provider asks you to sign in again.',
    otpChoice: 'Use a one-time code instead',
    otp: 'One-time code',
    otpHint: 'Six digits from your authenticator app, or one of your recovery codes.',
    submit: 'Approve',
    refuse: 'I did not ask for this',
    done: 'Approved',
    doneLead: 'The program that asked goes on by itself within a few seconds.',
    noWay:
      'You have no factor that this page can use. Prove yourself in the terminal, or ask an administrator of your cluster.',
  },
  enrol: {
    title: 'Add a passkey',
    lead: (user: string, cluster: string) =>
      `The passkey that you make here logs ${user} in to ${cluster}, without a password. Your browser asks where to keep it: on this device, on a phone, or on a security key.`,
    name: 'Name of the passkey',
    codeHint: 'Type it from the terminal where you started this. If no terminal of yours shows one, refuse.',
    submit: 'Make the passkey',
    refuse: 'I did not ask for this',
    done: 'The passkey is ready',
    doneLead: (name: string) => `It is listed as “${name}” by sallyport mfa ls. The program that asked goes on by itself.`,
  },
  invite: {
    title: (cluster: string) => `Welcome to ${cluster}`,
    lead: (user: string, cluster: string) => `You were invited to ${cluster} as ${user}. Choose how you want to log in.`,
    passkeyTitle: 'With a passkey',
    passkeyLead: 'One touch, nothing to remember, and no page that pretends to be this one can use it.',
    name: 'Name of the passkey',
    nameHint: 'So that you know it again later, such as “work laptop” or “blue key”.',
    nameMissing: 'Give the passkey a name.',
    submit: 'Make a passkey',
    passwordTitle: 'With a password',
    passwordLead:
      'Passwords are set in your own terminal, not on this page, so that no web page ever sees them. Run this command:',
    pin: 'The part after # is how the program knows that it talks to the right cluster.',
    pinMissing:
      'The part of your link after # is missing here. Put the whole link from your message into the command, in quotes.',
    done: (user: string) => `The account of ${user} is ready`,
    doneLead: 'Log in from your terminal. Your browser opens, and asks for the passkey that you have just made:',
    noSuch: 'No such invitation',
    noSuchLead: 'The link has been used, has expired, or was not copied whole. Ask an administrator for a new one.',
  },
  front: {
    title: (cluster: string) => cluster,
    lead: 'This is the one address of the cluster: servers, databases and applications are reached through it.',
    steps: 'Log in, then connect',
    keys: 'Certificate authorities',
    keysLead: 'The public keys by which other software believes the certificates of this cluster.',
    links: [
      ['/ca/user/openssh', 'Users, for sshd'],
      ['/ca/host/known_hosts', 'Hosts, for known_hosts'],
      ['/ca/user/tls', 'Users, TLS'],
      ['/ca/host/tls', 'Hosts, TLS'],
    ],
  },
  passkeys: {
    missing:
      'This browser cannot use passkeys here. Use a current browser, and open this page by https with a certificate that the browser trusts.',
    cancelled:
      'No passkey was used: the prompt was closed, ran out of time, or found no passkey for this cluster. Try again, on the device or with the key that has it.',
    notMade: 'No passkey was made: the prompt was closed or ran out of time. Try again when you are ready.',
    already: 'This device or key has a passkey for your account already. Use another one, or log in with the one it has.',
    unusable: 'This passkey cannot be used here. Try another one.',
    otherAddress:
      'Passkeys of this cluster belong to another address than the one in your address bar. Open the page by the address that your administrator gave you; the settings are auth.authentication.webauthn.rp_id and origins.',
    noKind: 'This device or key makes no kind of passkey that the cluster accepts. Use another one.',
    noVerification: 'This key cannot check that it is you. Give it a PIN or a fingerprint first, or use another one.',
    failed: 'The browser could not use the passkey. Try again, or use another one.',
  },
  errors: {
    slow: 'The proxy took too long to answer. Try again.',
    unreachable: 'The proxy cannot be reached. Check your connection, and try again.',
    unexpected: (status: number) => `The proxy answered in a way this page does not know (HTTP ${status}). Try again later.`,
    codeMissing: 'Type the code that the program shows.',
    userMissing: 'Type your user name.',
    passwordMissing: 'Type your password.',
    otpMissing: 'Type a one-time code or a recovery code.',
  },
};
