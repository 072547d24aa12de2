# SPDX-License-Identifier: Apache-2.0
"""Sentence patterns that a native engineer in this field would mark, each with plain wording to use instead.
Sentences come from prose.py: CODE stands for a name of code, and STATUS for a status or an exception."""
import dataclasses
import functools
import re

from prose import Sentence

# Parts of patterns, which patterns include as <NAME>.
PARTS = {
    "BE": r"(?:is|are|was|were|be|been|being)",
    "THING": r"(?:rank|GPU|device|host|node|process|thread|core|step|parameter|element|tensor|group|bucket|call|file"
             r"|run)",
    # Things to which earlier texts referred as "who", and words before an indirect question.
    "NO_PERSON": r"(?:ranks?|process(?:es)?|threads?|hosts?|owners?|peers?|nodes?|GPUs?|devices?|others?|nobody"
                 r"|somebody|all|one|way|rest|survivors?|neighbou?rs?|jobs?|programs?|librar\w+|calls?|comms?|CODE"
                 r"|knows?|tells?|says?|told|of|for|to|with|by|from|and|or|on|in|is|are|so|;|:)",
    "ENDS": r"(?=[.,;:)]|$)",
    "GOES_ON": r"(?=[.,;:)]|$| (?:and|or|but|in|on|at|for|is|are|that|which|by|to|with|as|when|where|if|while|from|of"
               r"|may|can|must|has|have|had|does|do|works?|needs?|after|before)\b)",
}


@dataclasses.dataclass
class Rule:
    name: str
    patterns: list[str]  # any of these
    advice: str
    limit: float = 3  # the largest number of findings per 10,000 words of all files
    kinds: str = "text item cell heading field"

    def found_in(self, sentence: Sentence) -> "re.Match[str] | None":
        if sentence.kind not in self.kinds.split():
            return None
        found = (compiled(pattern).search(sentence.words) for pattern in self.patterns)
        return next((match for match in found if match), None)


@functools.lru_cache(maxsize=None)
def compiled(pattern: str) -> "re.Pattern[str]":
    for name, part in PARTS.items():
        pattern = pattern.replace(f"<{name}>", part)
    return re.compile(pattern)


# Limits of 0, 0.9 and 0.27 (0.3 in 1,000 sentences) are the counts in LevelDB, NCCL, UCC, libplacebo and dav1d.
IDIOMS = [
    Rule("behind", [
        r"(?i)\b(?<!fall )(?<!falls )(?<!lag )(?<!lags )(?<!idea )(?<!rationale )(?<!forces )(?<!reason )"
        r"(?<!reasoning )(?<!motivation )(?<!left )(?<!hidden )(?<!philosophy )(?<!principle )behind\b"
        r"(?! the scenes| (?:an? |the )?(?:firewall|proxy|NAT|flag|lock|API|interface|facade))"],
        "'after' or 'following'", limit=0),
    Rule("of its own", [
        r"\bof (?:yours|ours|theirs|mine|hers)\b",
        r"\bof (?:its|their|your|our|his|my|one's) own<GOES_ON>"],
        "'its own X', 'your X'", limit=0),
    Rule("of X's", [
        r"\bof (?!which|CODE)(?:[a-z]+ )?(?!(?:it|that|there|what|here|let)\b)[a-zA-Z]+(?:'s|s')<GOES_ON>"],
        "'X's Y'", limit=0),
    Rule("who", [
        r"(?i)\b(?:whom|whoever|whomever)\b",
        r"(?:\b<NO_PERSON>,?|[;:]) who\b"],
        "'that', or the rank's name", limit=0.9),
    Rule("begins with a relative clause", [
        r"^(?:What(?!'s|ever| about)|Whoever|Whatever|Whichever|Whom|Whose|Who|Which)\b(?!.*\?)(?=.*[.:;]$|"
        r"(?: \S+){7})",
        r"^That (?:a|an|the|all|it|they|no|each|every|one|nothing|there|its|their|some|any|CODE)\b",
        r"^How (?!to\b|do\b|does\b|is\b|are\b|can\b)\w+\b(?!.*\?)(?=.*[.;]$)"],
        "subject, verb, object", limit=0.27, kinds="text item cell field"),
    Rule("begins with a subordinate clause", [
        r"^Whether (?!to\b|or not\b)[^,]*$(?<!\w)",
        r"^Where (?!possible|applicable|available|to\b|can\b|do\b|is\b|each\b)(?!.*\?)",
        r"^(?:For|In|On|At|To|By|From|With|Until|After|Since|Of|Under|About|As) (?:how|what|whom|where|when"
        r"|whose)\b(?!.*\?)"],
        "subject first", kinds="text"),
    Rule("begins with Of", [
        r"^Of (?!course)"],
        "subject first", limit=0.3),
    Rule("begins with By", [
        r"^By (?!default|(?:\w+ly )?\w+ing\b|convention|design|contrast|definition|itself|now|the way|hand"
        r"|comparison|configuration|Default)"],
        "subject first"),
    Rule("begins with Not", [
        r"^Not (?:before|until|by|in|for|at|after|even|what|with|one|a|the|when|where|if|so|yet|there)\b"],
        "'only after'", kinds="text item"),
    Rule("inverted", [
        r"^(?:Is|Are|Was|Were|Has|Have) (?:the|a|an|it|its|they|all|no|this|any|one|every) [^?:]*, [^?]*\.$",
        r"\b(?:is|are|was|were) only then\b",
        r"^(?:Only|Never|Nor|Neither|Nowhere|So) (?:\w+ ){0,5}?(?:stands?|lies?|comes?|goes|belongs?|lives?|does|do"
        r"|did)\b(?! not)",
        r"^(?:To|From|In|On|At|With) (?:it|this|that|them|these|what|which)\b (?:<BE>|stands?|lies?|come|comes|goes"
        r"|belongs?)\b",
        r"[,;] as (?:is|are|may|can|do|does|did|was|were|will|has|have|had|must|would|should) (?!required|shown"
        r"|usual|common|expected|noted|described|possible|needed|appropriate|necessary|documented|the case|well"
        r"|follows|standard|typical|often|been|discussed|always|sometimes|customary)",
        r"(?:\band|,|;) so (?:is|are|do|does|has|have|did|was|were|goes) (?!not|recommended|that)\w+",
        r"^(?:With|By|Through|From|For) (?:this|that|it) (?:the|a|an|it|they|all|every|each|no|one|libzero|CODE)\b",
        r", (?:therefore|thus|hence|then|thereby|here) (?:is|are|was|were|has|have|will|must|lets?|takes|comes) "
        r"(?:the|a|an|this|it|they|all|each|every)\b"],
        "subject before verb", kinds="text item cell field"),
    Rule("although but", [
        r"^(?:Although|Though|Even though)\b[^.;]*, but\b",
        r"^(?:As soon as|As long as|When|If|Because)\b[^,;.]*, so (?!that\b|far\b)"],
        "one conjunction", kinds="text item"),
    Rule("if will", [
        r"^(?:If|When|In case|After|Before|Until|Once|As soon as) (?!this\b)[^,.;]{3,60} will (?!not\b)\w+"
        r"[^,.;]*, "],
        "the present tense after 'if' and 'when'", kinds="text item"),
    Rule("missing article", [
        r"^(?:Function|Method|Library|User|Parameter|Object|Process|Program|Argument|Variable|Thread|Rank) (?:returns?"
        r"|is|are|has|must|takes?|allows?|can|will|should|needs?|was)\b",
        r"\b(?:inside of|inside|build|of|use|load) (?:library|function|program|communicator|kernel)(?=[.,;:)]|$"
        r"| (?:is|has|must|with|in)\b)",
        r"\b(?:moved?|copied|copy|sent?|transferred) to (?:GPU|host|device)(?=[.,;:)]|$| (?:is|has|in)\b)",
        r"(?:^|, |\b(?:that|if|when|because|so|otherwise) )(?:user|caller|library|function|program|compressor|decoder"
        r"|encoder|application|server|client|thread|process|buffer|pointer|system|checksum|file|GPU|optimizer) (?:must|will|can"
        r"|should|is|has|needs|returns|does|may)\b",
        r"(?i)\b(?:before|after|from|until|during|with|of|to|on) (?:first|next|same|previous|current) (?!\w+s\b)"
        r"(?!and\b|or\b|to\b|then\b|in\b)[a-z]+",
        r"\bmost of (?!the|this|these|those|that|its|our|your|their|which|them|it|all|us|an?\b|CODE)[a-z]",
        r"\b(?:by|of|from|to|with) (?:user|buffer|caller|library|compiler|array|static library|header file|struct)"
        r"(?=[.,;:)]|$| (?:is|in|must|has|before|after|individually|directly)\b)",
        r"(?i)\b(?:with|by) help of\b|\bon system\b|\bat the runtime\b|\bper each\b"],
        "'the' or 'a'", kinds="text item"),
    Rule("label", [
        r"^[A-Z][a-z]+: (?:by|to|from|with|of) (?:the|a|an|each|every|its|all)\b[^.]*\.$"],
        "a sentence", kinds="text"),
    Rule("no verb", [
        r"^(?:Done|Made|Taken|Kept|Written|Sent|Found|Asked|Refused|Told|Left|Meant|Said)\b(?!.*\b(?:<BE>|has"
        r"|have|does|do|can|may|must|will)\b)"],
        "a subject and a verb", kinds="text"),
    Rule("to X is Y", [
        r"^To (?!do so|date|inspect|find|ensure)\w+(?: [\w-]+){0,6}? (?:is|are|costs?|needs|takes|would|means) "
        r"(?!therefore)\b"],
        "'X returns', 'you must'", kinds="text item"),
    Rule("a X as rate", [
        r"(?i)\b(?:\d[\d.,]*|one|two|three|four|five|eight|many|several|half|few|more|most)(?: (?!is\b|are\b|in\b"
        r"|on\b|of\b|as\b|for\b|to\b|by\b|with\b|has\b|that\b|per\b|or\b|and\b|lacks?\b|needs?\b|gets?\b|holds?\b"
        r"|makes?\b|sees?\b|sends?\b|owns?\b|gives?\b|takes?\b|before\b|after\b|while\b|when\b|until\b|if\b|than\b"
        r"|from\b|into\b|at\b|not\b|but\b)[\w-]+){1,2} an? <THING>\b(?! (?:of|that|can|is|has|with|or|and))",
        r"\b\d[\d.,]* (?:minutes|seconds|hours|[KMGT]i?B|bytes|times|steps|ms|s|bits|words|lines|threads|cores"
        r"|ranks|GPUs|calls|messages|copies) an? (?!(?:second|minute|hour|day|week|month|year)\b)\w+\b(?! (?:that"
        r"|of)\b)",
        r"\b(?:once|twice|times) an? <THING>\b",
        r"(?i)\b(?:an?|one|some) (?:[\w-]+ )?<THING> an? <THING>\b(?! (?:of|that|can|is|has|with))",
        r"(?<!')\b(?:MB|GB|KB|MiB|GiB|KiB|ms|s|bytes|elements|copies) an? <THING>\b",
        r"\b<THING>s an? <THING>\b(?! (?:of|that|can|is|has|with))"],
        "'per X'", limit=0.5),
    Rule("that of", [
        r"\b(?:is|are|as|with|by|from|of|in|be|and|or|on|at|for|after|,) (?:that|those) of\b",
        r"\bthe (?:fastest|slowest|best|largest|smallest|newest|oldest|latest|last) of (?!the|these|those|all|each"
        r"|its|their|our|every|which|several|any|them|two|three|both|a\b|this|CODE|your|many)[\w-]+",
        r"\bthe one of (?:the|these|those|them|its)\b"],
        "the noun again"),
    Rule("those that", [
        r"\b(?:those|these|all|that) (?:that|which)\b(?! (?:is why|is needed|way|case|point|setup))",
        r"\bthose (?:by|on|at|to|under|after|before|without|as|not|there|here|whose)\b"],
        "the noun again"),
    Rule("is that is", [
        r"\b<BE> that <BE>\b",
        r"\bthat that\b(?! is)",
        r"\b(?:all|everything|the same) what\b",
        r"\b(?:makes?|causes?|can be|could be|without|prevents?|before|until|because|while) that (?:a|an|the|it"
        r"|they|all|no|this|one|every|each|its|ranks)\b"],
        "two sentences"),
    Rule("what as a noun", [
        r"\b(?:of|to|with|from|by|after|before|behind|for|in|into|over|at|between|and|or|but|as|beside|under"
        r"|against|without|like|not|only|also|until) what\b(?! (?:is going|happens|if|to do)\b)(?!.*\?)",
        r"[,;:] what\b(?!'s)(?!.*\?)",
        r"\b(?!(?:indicat|signif|determin|specif|know|see|show|explain|describ|decid|about|is|was|find|found|check"
        r"|understand|out|learn|tell|say|choos|defin|control|guess|exactly|documents?|matter)\w*\b)[a-z]+ what "
        r"(?:is|was|are|were|it|they|a|the|all|each|every|another|other|one|has|have|ranks?|no|libzero|this)\b"
        r"(?!.*\?)"],
        "the noun: 'the bytes that'"),
    Rule("as any", [
        r"\b(?<!well )(?<!such )(?<!soon )(?<!long )(?<!much )(?<!many )(?<!far )(?:as|like|than) (?:any|every|all"
        r"|each)\b(?! (?:other|of|the|but|right|known|\w+-\w+))"],
        "'like any other X'"),
    Rule("is STATUS", [
        r"(?<!\d )\b<BE> (?:a |an |also |then )?STATUS\b",
        r"\bget(?:s|ting)? STATUS\b",
        r"\b(?:is|are|was|were|be) (?:also )?answered\b",
        r"\banswers? (?:by|what|as|the same|first|for|it|no|CODE|STATUS|so)\b"],
        "'returns STATUS'"),
    Rule("former, latter", [
        r"(?i)\bthe (?:former|latter)\b"],
        "the noun again"),
    Rule("shall", [
        r"(?i)\bshall\b"],
        "'must', 'should'"),
    Rule("so far", [
        r"\bso far\b"],
        "'up to now', or nothing"),
    Rule("such X as", [
        r"\bsuch (?:an? )?(?!as\b|that\b|\w+ as well)[\w-]+(?: [\w-]+)? as\b"],
        "'X like'"),
    Rule("says", [
        r"\b(?:says?|said) (?:CODE |[\w-]+ )??(?:what|which|who|whom|where|why|whether|so|nothing|of|no|when)\b",
        r"\b(?:tells?|told) (?:CODE )?(?:what|which|who|whom|where|why|so|nothing|of|no|when|apart)\b",
        r"\b<BE> told\b(?! to)",
        r"\b(?:nobody|nothing) (?:says|tells)\b",
        r"\bCODE says(?! to)\b"],
        "'reports', 'names', 'prints'"),
    Rule("stands, lies", [
        r"(?i)(?<!operating )(?<!long-)\b(?:stands?|stood|standing)\b(?!-)(?! (?:for|out|alone|up|still|by|as)\b)",
        r"\b(?:lies?|lay|lain) (?:at|on|with|behind|there|between|beside|outside|inside|under|within|where|before"
        r"|after|beyond)\b"],
        "'is'"),
    Rule("lives, goes, comes", [
        r"(?<!remain )(?<!remains )(?<!-)\b(?:lives?|lived) (?:until|as long|till|for|while|longer)\b",
        r"\b(?:goes|go|went) (?:by|here|with|of|first|as|on|unseen|unnoticed|packed|unpacked|faster|slower|alone)\b"
        r"(?! the name)",
        r"\bcomes? (?:of|after|by|there|late|of|last|ahead)\b",
        r"\b(?:may|can|must|did not|do not|does not|will|could|would|should) come\b(?! (?:from|with|in|to|back|up"
        r"|at|as|out|into|first|across))",
        r"\b(?:stays|stay|stayed) (?:with|there|as|where|in place|so|behind|yours|what)\b",
        r"\b(?:has|have|had|is|are|when \w+|until \w+) (?:come|came|gone)\b(?! (?:to|from|up|in|out|across|through"
        r"|with|into|wrong|down|back|a long|because|or)\b)",
        r"\b<BE> (?:not |all |already |still |always )?(?:there|gone)<ENDS>"],
        "'is valid until', 'follows', 'continues', 'exists'"),
    Rule("nobody", [
        r"(?i)\b(?:nobody|somebody|everybody|anybody)\b"],
        "'no rank', 'no process'"),
    Rule("nothing", [
        r"(?i)\b(?:nothing|anything|something|everything) of (?:it|a|that|this|each|your|its|one|what|the)\b"
        r"(?! above| reported)",
        r"\ball of (?:one|two|a|what)\b",
        r"\bnothing (?:but|new)\b",
        r"\bthere (?:is|are|was|were) none\b",
        r"\b(?:is|are|has|have|had|needs?|says?|gets?|or) (?:none|nothing)\b(?! to\b| more\b)",
        r"\bwith none\b",
        r"(?i)(?:, |; |: |\()(?:or none|none|nothing|if none)<ENDS>",
        r"(?<![\x22'(=] )(?<![\x22'(])\bnone\b(?! of (?:the|these|them|those|our|its))(?! from)"],
        "'no X'", kinds="text item heading field"),
    Rule("but as except", [
        r"\b(?:[Nn]othing|[Nn]one|[Nn]obody|[Nn]o \w+)\b[^.,;:(]* but (?!also|not|it|they|is|are|there|this|in\b|for\b"
        r"|only|with|may|can|will|has|have|must|you|we|do|does|still|some|CODE (?:is|has|will|can)"
        r"|the \w+ (?:is|are|has|can|will))\w+",
        r"\b(?:every|each|any|no|none|everything|whole|nothing)(?: [\w-]+)? but (?!not|also|is|are|it|they|may|does"
        r"|do|can|the CODE|this|only|if|will|you|we|must|should|instead|rather|with|without)\b",
        r"\bbut (?:for|of) (?:its|a|one|what|that|those)\b",
        r"(?<!,)(?<!\w,) but (?:its|the|one|a) (?:last|first|newest|oldest|lowest|highest|\w+est)\b"],
        "'except'"),
    Rule("no more", [
        r"\b(?:has|have|had|with|without|tells?|makes?|gets?|gives?|sends?|reads?|needs?|takes?|does|do) no more\b"
        r"(?! than)",
        r"\b(?:no|never) more<ENDS>"],
        "'no longer', 'runs out of'"),
    Rule("other X than", [
        r"(?i)\bothers? (?!than|\w+ing\b)\w+ than\b",
        r"\b(?:others|another \w+) than\b",
        r"(?i)(?<!among )(?<!amongst )\bother things\b"],
        "'differs from'"),
    Rule("as for because", [
        r"(?<!such), as (?:it|they|there|no|all|each|ranks|nothing|what|one|libzero|some|most|many|only|two|both"
        r"|every)\b(?! (?:well|long|soon|same|follow|several|are))",
        r"(?<!such), as (?:the|a|an|its|their|this|that|these) (?:[\w-]+ ){1,2}?(?:is|are|has|have|was|were) "
        r"(?!common|usual)"],
        "'because'"),
    Rule("as X does", [
        r"\bas (?!(?:long|soon|many|much|well|if|you|we|it|they|expected|often|possible)\b)(?:[\w.'-]+ ){1,3}?"
        r"(?:does|do|did|ends|goes|stands|says|wants)\b(?! not)(?!n't)",
        r"(?<!long )(?<!soon )(?<!much )(?<!well )(?<!such )\bas (?:it|they|that|there) (?:is|are|was|were)<ENDS>",
        r"\bas (?:it|they) (?:stands?|stood|comes?|came)\b"],
        "'like X', or the verb again"),
    Rule("where there is", [
        r"\bwhere there(?:'s| is| are| was| were)\b",
        r"\bwhere (?:it|they|that|this|one|none) (?:is|are|was|were)<ENDS>",
        r"\b[Tt]here, where\b",
        r"\bwhere(?:ver)? none\b"],
        "'if', 'the X that'"),
    Rule("archaic", [
        r"(?i)\b(?:anew|thereof|thereto|thereon|thereupon|whereof|whereupon|whence|thence|hereof|herewith|hereby"
        r"|heretofore|forthwith|lest|hitherto|ere|unto|nought|naught|beside|aforementioned|aforesaid|in so far"
        r"|inasmuch|therewith|wherewith|whereby|nowhere|be it|many a)\b"],
        "plain words", kinds="text item cell field"),
    Rule("calque", [
        r"\bfrom (?:the )?(?!next|first)\w+(?: \w+)? on[.,;]",
        r"\b(?:is|are) as (?:in|with|for|at|on|above|below|before|of)\b",
        r"\bmakes? (?:of|from) (?:each|the|a|it|all|this|that)\b|\banother one\b|\btakes? care that\b",
        r"\bmust be there\b",
        r"(?i)\b(?:the|a|no) possibility (?:to|for)\b",
        r"(?i)\b(?:allows?|permits?|enables|suggests?|recommends?|demands) to (?!(?:the|an?|all|each|this)\b)\w+",
        r"(?i)\b(?:independent(?:ly)? from|divisible on|for to|in case if|must (?:not )?to|by hand of"
        r"|(?:is|are) already been|(?:firstly|secondly|thirdly)|never came|also not|no more \w+able)\b",
        r"(?i)\b(?:reports? error|comes? to an? \w+ion|cares? (?:for|about) that|lets? (?:itself|themselves))\b",
        r"\b(?:can|could|may|might|must|will|should) to (?!do\b)\w+|\bto (?:don't|not to)\b|\bsupports? to \w+",
        r"(?i)\bin case of (?:the|a) \w+ (?:is|are|was|has)\b|\beach time when\b|\bas long until\b|\bit comes to"
        r"\b|\bhimself\b|\bherself\b|\brepresents itself\b|\b(?:not|does not|do not) more (?!than)[a-z]+",
        r"(?i)\bpointers? on (?:the|an?)\b|\b(?:no any|the another|is exist|able of|there exists? no|foreseen for"
        r"|CODE respectively CODE|not (?:possible|allowed|necessary|enough) to not)\b|\bcan not open\b",
        r"^When \w+ing [^,]*, (?:need|please|can|should|must|it will)\b|^About (?:the|an?) [^,]*, |^Since version "
        r"\S+ (?:it|the|there|this)\b|\b(?:after how many|how many|how much|which) [^,.;]* should the\b",
        r"\b(?:is|are|was|were) (?:occurred|happened|appeared|existed|same (?:as|like|with)|already exist)\b|\bin case that\b"
        r"|\bbecause of (?:it|this|that) \w+s\b|\b[Ii]n (?:opposite|difference|contrary) to\b|\b[Cc]annot to\b",
        r"\bit (?:will be|is|was) (?:returned|thrown|raised) (?!by|in|to|as|if|when|and|or|only|from|with)\S"
        r"|\b[Ii]n case of (?!an?\b)\w+ing\b|\bplease (?:confirm|check) (?:whether|if)\b|\bin the production\b",
        r"\b(?:an?|the) \w+ what \w+s\b|\b[Ii]f (?:want|need) |\byou need (?:define|use|call|include|set|install|create"
        r"|add|check)\b|\b(?:before|after|by|without) (?:include|call|create|define|initialize) (?:the|an?)\b",
        r"\b[Tt]here is (?:a lot of|many|several) \w+s\b|\botherwise (?:can|is|must|will|has|would) (?:the|an?|it)\b",
        r"\b(?:must|can|should|may|will) be not\b|\bis consisted of\b|\bbe (?:hang|crash|fail)\b|\brespectively -?\d"
        r"|\bmore (?:faster|slower|better|bigger|smaller|easier|safer)\b|\bno need of\b|, in this case (?:the|it|an?)\b",
        r"^(?:Currently |At present |Now )?(?:[Oo]nly )?[Ss]upport (?!for\b|is\b|of\b)\w+|\b[Ee]ach of the \w+s (?:have|are|were)\b"
        r"|\bmaybe there (?:is|are)\b|^(?:The|An?|This|Each|Every) (?:client|server|rank|user|function|process|caller"
        r"|library|thread|buffer) (?:have|are|were|do|need)\b|\bat least one of [a-z]+ (?!the\b)[a-z]+s\b",
        r"^When [^,.;]*, then the\b|\b(?:with|has|have|at|of|by|using?|returns?|from|to|into) same\b",
        r"\b(?:does|do|did)(?: not|n't) \w+(?:es|[^su]s)\b(?<!access)(?<!process)(?<!address)"
        r"|\b(?:refer|see|look|according) to (?:below|above|following) \w+|\bin background\b",
        r"^It exists\b|\b[Dd]ifferent (?:with|to what)\b|\bto can\b|\bcan not more\b|\b[Ee]verytime\b|\bindependent of if\b"
        r"|\b(?:is|it's) suggested to\b|\bin multi-\w+s\b|\bthe here \w+ed\b|, when it is \w+, \w+ \w+|\bcontrol is given"
        r"\b|\bprogress the \w+s\b|\bwhich locate\b|^After the \w+ \w+(?:eed|ish|end|fail),",
        r"^By default (?:uses|is|takes|has|returns|writes|creates)\b|^How to [^,]*, (?:please|see|refer)\b",
        r"(?i), (?:generally |usually )?no need|\bplease check[.;]|\bcan refer to\b|\bit is to \w+ that\b",
        r"(?i)\b(?:informations|datas|softwares|hardwares|equipments|advices)\b",
        r"(?i)\b(?:in dependence (?:of|on)|depend(?:s|ing|ent)? (?:from|of)|on (?:the )?bas(?:e|is) of"
        r"|in difference to)\b",
        r"(?i)\b(?:in the meanwhile|the both|consists? (?:in|from)|same like|equal as|without to \w+|before to"
        r"|after to|as like)\b",
        r"(?i)\b(?:as (?:first|last|next)|the half of|is existing|an own|own ones|(?:no|the|with|have|has|by) own"
        r"|so long(?! as))\b",
        r"(?i)\b(?:from (?:then|there|now|here) on|at this place|on this place|for (?:the|that) case|in (?:every"
        r"|each) case)\b",
        r"(?i)\bif (?:it|they|one) would\b",
        r"(?i)\b(?:despite of|according (?:the|a)|more (?:early|late|fast|quick|big|small|near))\b",
        r"(?i)\bsince (?:two|three|four|a few|many|several) (?!of)\w+",
        r"\bhow (?:it|this|that|they) looks? like\b",
        r"(?<!a )(?<!the )(?<!A )(?<!very )(?<!so )(?<!too )(?<!as )(?<!last )(?<!next )(?<!first )"
        r"(?<!these )\bfew (?:minutes?|hours|seconds|ranks|files|bytes|steps|lines|times|threads)\b",
        r"\b[Ii]t is (?:for|on) (?:the|a|an|each|every|all|your) \w+ to\b",
        r"\bbrings? (?:its|their|no|what|one|all)\b",
        r"\b(?:in (?:the )?place of|one after the other|such a one|alike|in no case|of old|as of old"
        r"|once and for all)\b"],
        "the English idiom"),
    Rule("word order", [
        r"\b(?!(?:is|was|has|this|its|as|does|us|thus|unless|always|class|process|access|address|status|pass|less"
        r"|across|plus|towards|perhaps|afterwards|sometimes)\b)\w{2,}s (?:also|always|never|already|first|directly"
        r"|often|therefore|thus|at once|at first|only then|meanwhile) (?:the|a|an|its|their|all|each|every|your"
        r"|this|one|no|what)\b",
        r"\b(?:is|are|was|were|has|have|had|been|be) (?:not )?(?!something|nothing|anything|an\b|in\b)\w+(?:ed|en"
        r"|un|ing|nt|pt|de|ne|ut) already\b",
        r"\b(?:begun|reduced|done|running|written|made) already\b",
        r", (?:also|too,|again|alike)(?= (?:on|in|of|to|when|if|after|for|from|with|by|while|where|a|the)\b)"],
        "the adverb before the verb or after the object"),
    Rule("comma that", [
        r"^(?!(?:If|When|Even|At|With|On|In|For|As|Before|After|Unless|Since|Once|While|Although|Though|By|To"
        r"|E)\b).*(?<!ensure)(?<!note)\w, that (?!is\b|would|said|way|in turn|being|means|can|will|might|should|may"
        r"|could|case|are|was|does|CODE)\w+ \w+"],
        "no comma before 'that'"),
    Rule("of it", [
        r"(?<!inside )(?<!out )(?<!all )(?<!both )(?<!each )(?<!any )(?<!some )(?<!copy )(?<!most )(?<!more )"
        r"(?<!part )(?<!use )(?<!ahead )(?<!proof )\b(?:of|behind|beside) (?:it|them|that|these|those|him)(?: "
        r"(?:too|alone|alike|only|also|as well))?[.;]$",
        r"(?<!part), of (?:them|it|its|a|all|one|what|that|those|this|each|any|every|your|CODE)\b",
        r"\b[Aa]n? \w+ of (?:these|those|that|them)[.;]?$"],
        "the noun", kinds="text item field cell"),
    Rule("semicolons", [
        r"^(?!.*[{}=()]).*[a-z]; [^;]*[a-z]; (?=[a-z])",
        r"^(?!.*[{}=()]).*[a-z]; [^;:]*[a-z]: [a-z]",
        r"^(?!.*[{}=]).*[a-z]: [^;:]*[a-z]: [a-z]",
        r"[a-z)]; (?:by|nothing|none|what|not|nobody|rank|else|at|of|to|without|till|until|where|whose)\b"],
        "sentences", kinds="text field cell"),
    Rule("nested", [
        r", of which\b|, by which\b|\bby what\b",
        r"(?:\b(?:that|which|who|whom|whose|what|where)\b[^.;:(]*){5,}",
        r"\bof whose\b|, whose\b"],
        "two sentences", kinds="text item"),
    Rule("chain of of", [
        r"(?:\bof (?:(?:the|a|an|each|every|all|its|this|that|one|any|your|their) )?[\w-]+ ){3,}"],
        "'s, or a verb"),
    Rule("the longer", [
        r"(?i)\b(?:and|,) so much the (?:more|less|\w+er)\b",
        r"\b(\w+er), the \1\b"],
        "'X grows with Y'"),
    Rule("no as a noun's", [
        r"\b(?:by|to|for|of|from) no(?:ne)? (?!means|longer|avail|cost|fault|later|more|time|one|STATUS|CODE|less"
        r"|fewer|specific|particular|other)\w+",
        r"(?<!there )(?<!There )(?<!it )(?<!It )\b(?:is|are|was|were) no (?!longer|more|different|better|worse|need"
        r"|problem|guarantee|way|good|less|greater|larger|smaller|later|earlier|exception|reason|point|such"
        r"|other)\w+"],
        "the negation at the verb"),
    Rule("else", [
        r"(?<!or), else (?:by|made|as|it|the|in|with|of|a|an|on|from|to)\b",
        r"; else\b(?! if\b)",
        r"\bany[.;]$(?<!if any.)(?<!if any;)"],
        "'otherwise', a noun"),
    Rule("of it all", [
        r"\b[Tt]he (?!first|last|rest|two|sum|size|number)\w+ of (?:it|them)\b(?! (?:all|self))",
        r"^All of it\b",
        r", and (?:of|by|with|for|in|on|at) (?:all|it|that|those|what|the one)\b(?! (?:case|point|time|way|end"
        r"|sense))"],
        "'its X', or the noun again"),
    Rule("all as subject", [
        r"\b(?:when|until|once|after|before|if|that|because|where|while|[Aa]s soon as) (?:all|some|others|none"
        r"|only some|only one|neither|most) (?:have|has|had|are|is|do|does|did|can|may|were|was|know|see|come|agree"
        r"|call|called|announced|sent|wrote|passed|agreed|return|read)\b(?! (?:required|zero|set|optional|valid"
        r"|equal|specified|CODE))"],
        "'all ranks'"),
    Rule("is made", [
        r"\b(?:is|are|was|were) (?:made|said|named|found out|asked|meant|taken)(?=[.,;:]|$| (?:when|anew|once|after"
        r"|before|as|at|there|if|in place|without|too|also|only)\b)(?! (?:as a|when|at the|in place of))(?!, the)"],
        "the verb that is meant"),
    Rule("however it", [
        r"(?<![.;,] )(?<!^)\b(?:whichever|whatever (?!is|else|remains|may|might|you|real|metric|our)\w+ (?:is|are"
        r"|has|does|\w+s)\b|however (?!,)(?:many|much|often|long|it|they|the))\b"],
        "'any', 'every'"),
]


@dataclasses.dataclass
class OwnWord:
    """A word that libzero introduced or uses in its own sense, with its name, the pattern of its uses, and its
    meaning."""
    name: str
    pattern: str
    meaning: str


OWN_WORDS = [
    OwnWord("comm", r"comms?", "one rank's handle to a group of ranks"),
    OwnWord("arena", r"arenas?", "memory that libzero allocates and reduces in"),
    OwnWord("seal", r"seals?|sealed|sealing", "the first collective call: it fixes the owners and allocates the state"),
    OwnWord("remainder", r"remainders?(?! of)", "the 16 bits that a bfloat16 parameter lacks of its fp32 master"),
    OwnWord("publish", r"publish(?:es|ed|ing)?", "copy updated parameters from their owners to every rank"),
    OwnWord("vote", r"votes?|voted|voting", "the exchange in which all ranks agree to make a step"),
    OwnWord("extras", r"extras", "the caller's bytes in a checkpoint, by name"),
    OwnWord("share", r"(?:(?<=the )|(?<=its ))shares?(?= )|(?<=owned )shares?",
            "the part of the state that one rank owns"),
    OwnWord("instance", r"(?<=optimizer )instances?|instances", "ranks that divide one copy of the state among them"),
    OwnWord("custom rule", r"custom rules?", "an update rule that the caller gives as a function"),
]

DENIALS = (
    r"(?i)\bnot (?:there )?yet(?= (?:there|possible|supported|available|implemented|done|offered|in\b|part)|[.,;:)]|$)"
    r"|\b(?:is|are) not (?:yet )?there\b|\bnot (?:yet )?implemented\b|\bplanned\b|\b(?:does|do|can) ?not [^.;]* yet\b"
    r"|\b(?:there (?:is|are)|(?:libzero|Python|Rust|C|binding|module|crate|header) (?:has|have)) (?:no|none)\b"
    r"[^.;]* yet\b")
