# SPDX-License-Identifier: Apache-2.0
"""Sentence patterns of engineers who translate from another language, each with what English has instead. The pages of
Git, numpy, torch, Python, Open MPI, libfabric, Abseil, Rust and man-pages have 8 findings of these rules in 10,000
words, and at most 1.8 of each rule."""
from prose_rules import PARTS, Rule

PARTS.update({
    "COUNTED": r"(?:application|argument|array|buffer|caller|callback|channel|checkpoint|client|communicator|compiler"
               r"|compressor|connection|consumer|context|counter|cursor|database|decoder|descriptor|destructor"
               r"|constructor|device|directory|driver|element|encoder|entry|event|file|function|handle|handler|header"
               r"|host|index|interface|iterator|job|kernel|key|library|list|lock|loop|machine|message|method|model"
               r"|module|mutex|node|object|operation|operator|option|packet|page|parameter|parser|path|peer|pointer"
               r"|pool|process|producer|program|queue|rank|reader|region|request|scheduler|script|sender|receiver"
               r"|segment|server|service|session|signal|slot|socket|step|stream|string|structure|system|table|task"
               r"|tensor|thread|timeout|timer|transaction|tree|user|value|variable|vector|version|window|worker"
               r"|writer)",
    # Nouns before which short comments rarely omit the article.
    "ACTOR": r"(?:user|caller|library|compiler|application|server|client|destructor|constructor|communicator|scheduler"
             r"|decoder|encoder|compressor|program|optimizer|driver|worker|connection|transaction|database|iterator"
             r"|hash table|config(?:uration)? file|static library|environment variable|socket|structure|machine)",
    "DOES": r"(?:use|call|create|define|delete|destroy|enable|disable|execute|include|initialize|install|modify|open"
            r"|compile|allocate|register|release|remove|send|receive|specify|choose|store|write|set|start|get|run"
            r"|build|make|check)",
    "MODAL": r"(?:must|can|could|should|may|might|will|would|cannot|can't|won't)",
    "FINITE": r"(?:is|are|was|were|has|have|does|do|did|can|will|cannot|doesn't)",
    # Verbs in the form that follows 'to'.
    "ACT": r"(?:avoid|set|get|read|write|change|use|save|store|check|send|find|handle|start|stop|run|load|add|reduce"
           r"|wait|prevent|keep|lose|lock|call|connect|have|do|receive|make|reach|guarantee|ensure|increase|decrease"
           r"|achieve|allow|enable|obtain|protect|detect|convert|compute|create|define|execute|specify|control|delete"
           r"|choose|modify|open|share|register|give|take|return|free|need|support|contain|allocate|initialize)",
    "NEXT": r"(?=[.,;:)]|$| (?:is|are|was|were|has|have|must|can|will|should|in|on|at|of|for|from|to|and|or|but|which"
            r"|that|when|if|before|after|until|with|by|because|does|as|so|may|while)\b)",
})

FOREIGN = [
    Rule("agreement", [
        r"\b(?:an (?:user|unique|uniform|useful)|a (?:element|array|error|integer|object|index|empty|existing|invalid"
        r"|exception|address|input|output|interface|event|internal|external|additional|older|operation|application"
        r"|entry|hour)|(?:they|we|you) (?:has|is|was|does|doesn't|isn't|wasn't|needs|hasn't|wants))\b",
        r"\b(?:(?:the|this|each|an?|every) <COUNTED> (?:also|only|always|then|still|never|just|already|often"
        r"|usually) (?:have|are|do|need|use|return|were|call|want|take|get|make)|(?:[Ww]hen|[Ii]f|[Bb]ecause|so|but"
        r"|until) (?:the|all|these|those|both|two|other|some|several) (?:\w+ )?<COUNTED>s (?:is|has|was|doesn't|isn't"
        r"|does))\b",
        r"\b[Oo]ne of (?:the |these |those |its |our )?(?:reason|way|thing|problem|advantage|goal|example|case|place"
        r"|part|feature|difference|limitation|issue|error|condition|rule|field|member)<NEXT>",
        r"(?:^|, |\b(?:if|when|because|so|but|until|before|after|If|When) )(?:the|this|each|every|an?|The|This|Each"
        r"|Every|An?) <COUNTED> (?:are|have|do|need|make|contain|support|try|want|become)\b(?! (?:no|so)\b)",
        r"^(?:The|All|These|Both|Some|Two|Most) (?:\w+ )?<COUNTED>s (?:is|has|was|does|needs|makes|takes|contains)\b",
        r"\b(?:each|every|this|another|more than one) <COUNTED>s\b(?!')",
        r"\b(?:two|three|four|many|several|few|both|these|those|multiple|various) (?:kind|type|way|mode|possibility"
        r"|<COUNTED>)(?=[.,;:]|$| (?:is|are|was|were|has|have|must|can|will|should|of|which|that|when|if)\b)",
        r"\b(?:one|each|most|some|any|many|all|both) of (?:(?:the|these|its|our|your) )?<COUNTED>(?=[.,;:]|$| (?:is"
        r"|are|was|were|has|have|must|can|will|should|which|that|before|after|becomes?)\b)",
        r"\bnumber of <COUNTED>(?=[.,;:]|$| (?:is|are|was|has|must|can|will|should|to|in|which|that|exceeds)\b)",
        r"\b(?:it|which|client|server|user|caller|function|program) (?:need|want|try|have|depend|mean"
        r"|contain) (?:to\b(?! be able)|on\b|that\b)(?<!make it need to)",
        r"\b(?:<COUNTED>s|gradients|processes|samples) (?:synchronization|pool|group|number|allocation|reduction"
        r"|management)\b",
        r"\b(?:how|so|too|as|very) much (?:bytes|elements|\w+ions|times|<COUNTED>s)\b|\bless (?:bytes|elements"
        r"|entries|iterations|lines|samples|<COUNTED>s)\b(?! than or)|\beach (?:\d+|two|three|ten) \w+s\b",
        r"(?i)\b(?:informations|datas|softwares|hardwares|equipments|advices|feedbacks|knowledges|documentations"
        r"|middlewares|firmwares|traffics|garbages|evidences|researches)\b|\b(?:an?|one|every|many|these|those"
        r"|several|another|few) (?:information|software|hardware|advice|documentation|feedback|knowledge"
        r"|progress)<NEXT>",
        r"\b(?:at least|more than|up to|exactly|all|with|first|last) (?:two|three|four|[2-9]|\d\d+) <COUNTED><NEXT>",
        r"\b[Ee]ach of (?:the )?\w+s (?:have|are|were|do|need)\b|\b[Tt]here (?:is|was) (?:two|three|four|many|several"
        r"|multiple|different|various|no <COUNTED>s)\b|\b[Tt]here are (?:another|only one|much|no any)\b",
        r"\b(?:the|an?|this|each) (?:\w+ )?<COUNTED> <MODAL> (?!always\b"
        r"|sometimes\b)\w+[^su]s\b(?<!access)(?<!process)(?<!address)(?<!focus)",
        r"\bnumber of (?:GPU|CPU|core|byte|bit|second|time|iteration|sample|argument|attempt|dimension)(?=[.,;:]|$"
        r"| (?:is|are|was|has|must|can|will|should|to|in|which|that|exceeds|of|on|per|for)\b)|\bhave any (?:question"
        r"|problem|suggestion|idea|doubt|issue)\b"],
        "one number for subject and verb, and a plural after a number"),
    Rule("verb form", [
        r"\b<MODAL>(?: not)? (?:\w+ly )?(?!need|exceed|proceed|succeed|embed|feed|seed|speed|shed|bed|red)[a-z]+ed\b",
        r"\b<MODAL>(?: not)? (?!bring|ring|ping|string|spring|swing|during|using|something|anything|nothing"
        r"|everything|being)[a-z]+ing\b",
        r"\b<MODAL>(?: not)? (?:lost|done|sent|written|taken|given|chosen|made|found|kept|held|built|known|seen|been"
        r"|has|is|are|was|does|had|more than|less than|bigger|larger|greater|smaller|same)\b",
        r"\b(?:is|are|was|were|be|been) (?:not )?(?:allocate|create|initialize|delete|destroy|execute|contain|consist"
        r"|belong|depend|exist|happen|occur|require|receive|send|define|determine|provide|choose|include|call|hang"
        r"|crash|fail|become|mean|cause|remove|modify|specify|write|hold|build|keep|lose|bind|find|throw|get|support"
        r"|finish)\b(?![-'])",
        r"\b(?:is|are|was|were|be|been|being|has|have|had) (?:already )?(?:wrote|broke|chose|took|gave|began|drove"
        r"|fell|grew|knew|threw|forgot|froze|went)\b|\b(?:waked|setted|readed|costed|putted|splitted|hanged|sended"
        r"|builded|writed|binded|holded|losed|choosed|leaded|shutted|catched|cutted|getted|runned)\b",
        r"\b(?:is|are|was|were|be|been|gets?) (?:not )?(?:occurred|happened|existed|appeared|arrived|consisted"
        r"|depended|belonged|remained|succeeded|failed|disappeared|came|became)\b",
        r"\b(?:is|are) (?:supporting|containing|having|needing|depending|belonging|consisting|knowing|wanting|meaning"
        r"|owning)\b|\bto (?:can|should|cannot|been)\b",
        r"\bto (?:allocated|called|changed|created|defined|deleted|destroyed|executed|initialized|modified|opened"
        r"|registered|released|removed|returned|used|waited|written|sent|stored) (?:the|a|an|this|it|all)\b",
        r"\b(?:has|have|had) (?:not |already )*(?:been )?(?:allocate|create|finish|enter|initialize|define|receive"
        r"|send|destroy|succeed|exceed)\b",
        r"\bdid(?: not|n't) (?!need|embed|exceed|succeed|proceed|feed|seed|speed|shed)\w+ed\b",
        r"\b(?:before|after|without|by|while|of|instead of|for) (?:modify|include|define|create|initialize|destroy"
        r"|delete|enable|disable|execute|compile|install|allocate|receive|choose|specify|remove|pass|get|make|open"
        r"|close)(?=[.,;]|$| (?:the|an?|this|it|CODE|any|your|all|each|its|new)\b)",
        r"\b(?:before|after|by|without|for|besides|despite|while) to\b(?! CODE)|\b(?:suggest|suggests|avoids?"
        r"|consider|propose|advise) to <DOES>\b|\bworth to\b",
        r"\b(?:you|we|users?|they|it|also|only|just|then|will|would|don't|not|still) needs? (?:<DOES>|do|load|update"
        r"|add|restart)\b(?! of)|\b(?:when|if|while|once|because) (?:call|create|compile|want|destroy|modify) (?:to\b"
        r"|the\b|this\b|an?\b|it\b)",
        r"\b(?:helps?|wants?|tries|try|able|unable|needs?|plan) to \w+ing\b(?<!bring)|\b(?:possible|useful|able"
        r"|ability|way) to (?!bring|string|ping)\w+ing\b|\b(?:makes?|making|lets?|letting) (?:(?:the|an?|this|each"
        r"|our|your|its) <COUNTED>s?|it|them|us|you|users) to <DOES>\b|\bmakes? (?:the \w+|it|that) (?:fails|failed"
        r"|hangs|can|cannot|is)\b",
        r"\b(?:after|before|when|until|once|if|After|When|If|Before|Once) (?:(?:the|an?"
        r"|all) )?(?:\w+ )?<COUNTED> (?:finish|succeed|fail|exist|become|arrive|occur|happen|complete|disconnect)\b",
        r"\bmakes? (?:the|an?|this|each|all) <COUNTED>s? to (?!the\b|an?\b|CODE|this\b|another\b|its\b|each\b"
        r"|zero\b)[a-z]+\b|\b(?:all|the|of) remained\b|\b(?:it|that) (?:is|will be|was) waited\b",
        r"\b(?:has|have) (?:always|also|then|first|not|only|already|still) to\b|\b(?:don't|do not|doesn't|does not"
        r"|cannot|can't|must not|should not) (?:to\b|(?!bring|ring|nothing|anything)\w+ing\b)",
        r"\b(?:will|would|can|may|should|must) (?:be )?(?:\w+ )?(?:return|throw|raise|report)ed? (?:with )?error\b"
        r"|\b(?:will|can|may|might) (?:happen|appear|occur|arise) (?:the|an?|error|problems?)\b"],
        "the form of the verb that its position needs"),
    Rule("pattern of verb", [
        r"\b(?:suggest|recommend|propose)(?:s|ed)? (?:users?|you|the users?|developers?) to\b|\bit is suggested\b"
        r"|\bwe (?:suggest|recommend) to\b|\b(?:capable to|reason to that|responsible (?:to|of|for that))\b",
        r"\bwaits? (?:that|the|its|these|all|every)\b(?! (?:\w+ )?(?:time|second|minute|moment|period|interval|amount"
        r"|maximum|number|duration))|\bit is to (?:note|mention|say)\b|\b(?:pay|paid) attention (?:that|on|about)\b"
        r"|\bmake (?:attention|sure of)\b",
        r"\b(?:permit|allow|enable)(?:s|ed)? (?:to|for) (?:(?:the|an?) )?(?:developers?|users?|you|us|callers?"
        r"|clients?) to\b|\bpermits? to\b|\b(?:can|could|cannot|to|will|must|should|may) access to\b|\b(?:refer"
        r"|listen|belongs?|corresponds?|consists?|reacts?|relies) (?:the|below|this|these)\b",
        r"\b(?:influences? on|influences? to|affects? (?:to|on)|discuss(?:es)? about|mention(?:s|ed)? about"
        r"|enters? (?:in|into) the|describes? about|contacts? with|returns? back|revert back|contains? of"
        r"|emphasi[sz]es? on|explains? about|leads? (?:that|in)|(?:it|which|this) results? to|causes? that"
        r"|takes? care (?:about|that)|(?:is|are) forbidden to)\b",
        r"\b(?:recommend|suggest|advise|propose|want|prefer|expect)(?:s|ed)? (?:you|users?|the user) (?:using|use to"
        r"|don't|do not)\b|^(?:[Ss]upports?|[Aa]llows?) to\b|\bpointed (?:by|from) CODE\b|\bobliged to\b|\b(?:can|may"
        r"|could|will|might) come to (?:an?|the|changes|errors|problems)\b|\bcomes? to (?:an? )?(?:error|deadlock"
        r"|crash|conflict|overflow|leak)s?\b"],
        "the pattern that the verb has in English"),
    Rule("preposition", [
        r"\bdepend(?:s|ed|ing)? (?:of|from|by|in|if|whether)\b|\b(?:is|are) depended\b|\bconsist(?:s|ing|ed)? (?:from"
        r"|on|by)\b|\bdivi(?:ded|sible) (?:on|to)\b|\bdependent from\b|\bdifferent (?:with|as|of)\b|\b(?:equal"
        r"|identical|equivalent) (?:as|with)\b|\bequal (?:\d|zero)|\bsimilar (?:with|as|like|than)\b"
        r"|\bindependent(?:ly)? (?:from|to|of if|on if)\b|\b(?:superior|inferior|prior|prefers?) than\b"
        r"|\baccording (?:with|the|your|this)\b",
        r"\b(?:higher|lower|bigger|larger|smaller|faster|slower|shorter|newer|older|greater|fewer|better|worse"
        r"|earlier|later) as (?:the|in|on|for|with|this|that|specified|required|before|expected|requested"
        r"|configured)\b|\b(?:less|fewer|more) (?:bytes|memory|time|space|elements|\w+s) as (?:the|in|requested"
        r"|required|specified|expected|for)\b",
        r"(?<!not )(?<!n't )\b(?:is|are|be|least|almost|nearly|twice|about) so (?:big|large|fast|long|many|much|small"
        r"|high|often) as\b|\b(?:more|less|larger|bigger|greater|smaller|rather|other|faster|later"
        r"|longer) then (?:the\b|an?\b|\d|one\b|CODE)",
        r"\b[Ii]n (?:the )?(?:begin|moment|opposite|contrary)\b|\b[Ii]n (?:this|that) (?:moment|place)\b|\b(?:to|till"
        r"|up to|until|for) the moment\b|\bat this place\b|\bin the same time\b|\bat the first (?:time|call|place)\b"
        r"|\b(?:first|every|each|next|last) time when\b|\b(?:with|by|without) (?:the )?help of\b|\b[Aa]s the result\b"
        r"|\b(?:in|by) (?:two|three|four|ten|several|\d+) times\b|\bfor (?:\d+|two|three|several) times\b"
        r"|\bas consequence\b|\b[Bb]y the reason\b|\bwith the aim (?:to|of)\b|\bonly one time\b|\btill now\b",
        r"\bsince (?:long|years|now|\d+ (?:years|days|hours|minutes))\b|\b(?:is|are) (?:\w+ly )?(?:not )?(?:\w+ed"
        r"|known) since (?:version|release|many|several|two|\d)|^Since (?:the )?(?:version|release"
        r"|v)? ?\d[\d.]*,? (?!\w+ \w+ (?:has|have) been)\w+|\b(?:set|sets|switched|changed|put|limited) on (?:\d|zero"
        r"|true|false|CODE|NULL)\b",
        r"\b[Bb]ecause of (?:(?:the|an?|this|that|its|older|some) (?:\w+ ){1,3}|it |they )(?:is|are|was|were|has|have"
        r"|does|do|did|can|will|cannot)\b(?! (?:not )?(?:\w+ing|used to) )",
        r"\b[Dd]ue to (?:(?:the|an?|this|that|its) (?:\w+ ){1,2}|it |they )(?:is|are|was|were|has|have|does|do|did"
        r"|can|will|cannot)\b|\bduring \w+ing (?:the|an?)\b|\blike (?:it|they) (?:is|was|are|were)\b",
        r"\b[Ii]n case of (?:(?:the|an?) )?(?:\w+ ){1,3}(?:is|are|was|fails?|does|cannot)\b"
        r"|\bin (?:the )?case,? (?:if|when|that)\b|^In case (?:the|a|an|this|it|there|no) |\b(?:at|to|in) (?:minimum"
        r"|maximum)\b",
        r"\b(?:a|the|no|another) possibilit(?:y|ies) (?:to|of|for)\b|\b(?:[Oo]pportunity|possibility) (?:of"
        r"|for) \w+ing\b|\bdifferences? (?:to|with)\b|\b(?:in|at) (?:begin|beginning|end) of\b",
        r"^[Ff]or to\b|^[Ww]ith (?:the )?help of\b|^[Dd]epend(?:s|ed|ing)? (?:from|of|by)\b|\b[Ii]n the production\b"
        r"|\b[Ii]n function of\b|\bin base (?:of|to)\b|\b(?:in|on) its turn\b|\bin quality of\b|\b(?:inferior"
        r"|superior) (?:to|or)\b|\bcomprised between\b|\bin (?:all|many|some) of cases\b|\b(?:at|in) one moment\b"
        r"|\bin (?:that|this|such) way (?:the|it|you|we)\b",
        r"\b(?:in|by|to|for|of|with) (?:the )?(?:way|manner|form|purpose|aim|goal|order) (?:as|like|that to)\b"
        r"|\b(?:twice|times|double) (?:so|as) (?:more|bigger|larger|faster)\b|\b(?:two|three|several|times) (?:more"
        r"|bigger|larger|faster|slower) as\b|\b(?:after|before|since|until|during|while) (?:that|this) (?:the|an?|it"
        r"|you|all)\b|\bwith (?:success|error)(?=[.,;]| (?:or|and)\b)|\bper each\b",
        r"\b(?:possibilit\w+|methods?|examples?|ways|rules?) how\b|\bcan not\b|\bany more(?=[.,;]|$)|\bin (?:runtime"
        r"|run-time|compile time)\b|\b(?:need|necessity) (?:of|for|in) (?:\w+ing the|locking|copying|using)\b"],
        "the preposition or conjunction that English has here"),
    Rule("article", [
        r"\b[Aa] (?:own|error|object|array|index|input|output|integer|empty|existing|additional|exception|event"
        r"|element|entry|option|other|invalid|unknown|address|application|argument|operation|iterator|interface"
        r"|identifier|offset|update|undefined|unsigned|old|open|internal|external|alternative|instance|item"
        r"|executable|explicit|early|independent|individual|initial|important|unused)\b",
        r"\b[Aa]n (?:unique|user|unit|universal|used|union|useful|uniform|other|own|one|new|real|different|function"
        r"|value|special|file|process|long|good|same|second|single|common|corresponding|certain)\b|\b[Tt]he both\b"
        r"|\bthe most of\b|\bthe version \d|\bthe (?:step|GPU|level|node|line|chapter|section|stage|C\+\+) \d+<NEXT>",
        r"(?<!no )(?<!any )(?<!one )(?<!each )(?<!every )(?<!all )(?<!only )(?<!another )\b[Ss]uch (?:approach"
        r"|situation|possibility|mechanism|configuration|way|method|option|<ACTOR>)(?=[.,;]| (?:is|are|can|will|has"
        r"|must|allows|in|of|should|may)\b)",
        r"\b(?:takes?|taking|needs?|after|for|costs?|spends?) (?:very |too )?long time\b"
        r"|(?<!a )(?<!whole )\blot of\b",
        r"\b(?:[Tt]o|[Ff]rom|[Oo]f|[Ww]ith|[Ii]n|[Oo]n|[Uu]se|[Uu]sing|[Bb]y|[Aa]fter|[Bb]efore|[Ff]or"
        r"|[Aa]t) (?:latest|newest|current|previous|next|first|second|last|same|following|above|below|given"
        r"|corresponding|whole|entire|present) (?:\w+ )?(?:<COUNTED>|implementation|example|case|release|time|call"
        r"|place|way|order|section)\b",
        r"\b(?:is|was|becomes|be|as|not) (?:regular|valid|new|simple|separate|single|special|common|optional|empty"
        r"|existing|small|large|local|global|positive|negative|unique|thin|internal) (?:<COUNTED>|number"
        r"|integer)<NEXT>",
        r"\b(?:by|of|from|to|with|inside|into|for|after|before|in|on|at|than|between) <ACTOR><NEXT>",
        r"(?:^|, |; |\b(?:that|if|when|because|so|otherwise|until|before|after|once|and|but|whether|unless|while|as"
        r"|If|When|Before|After|Once|Until|Because|Unless|While) )(?:<ACTOR>|memory leak|device|buffer|queue|process"
        r"|system|thread|session|request|timeout) (?:must|will|can|should|is|has|needs|needn't|returns|does|may|was"
        r"|cannot|gets|becomes|contains|finishes|starts|exits|exists|succeeds?|wants?|fails|set to|exit)\b",
        r"\b(?:creates?|accepts?|needs?|requires?|opens?|registers?|defines?|specif(?:y|ies)|pass(?:es)?|allocates?"
        r"|frees?|calls?|use|using|destroys?|loads?|modif(?:y|ies)|takes?|expects?|provides?|closes?"
        r"|initiali[sz]es?) (?:static |new |own |tree |valid |first |current |required )?(?:<ACTOR>|pointer|buffer"
        r"|callback|device|handle|cursor|algorithm|allocator)(?=[.,;:)]|$| (?:of|to|for|from|in|on|which|that|with|by"
        r"|and|before|after|is|when|if)\b)|\bwith flag\b",
        r"\b(?:is|are|be|was|stay|returns?|has|have|with|of|at|by|using|in|on|to|from) (?:exactly |not "
        r"|nearly )?same\b|\b(?:an?) such\b|\bthe concerned \w+\b|\b(?:the|an?) (?:too|so|very much) (?:big|large"
        r"|small|long|short|high|low|old|new) \w+",
        r"\b(?:is|are|be) (?:not |also |just |only )?(?:power|multiple|subset|instance|copy|combination|sequence"
        r"|wrapper|pair|reference|pointer|alias|replacement|extension|implementation|container|collection"
        r"|limitation) (?:of|to|for|over|around)\b|^The \w+ of (?:\w+ion|work|call) (?:is|are|must|can|will"
        r"|depends)\b|\b(?:as|with|in|by|of|from|at|to) (?:first|second|third|fourth) (?:parameter|argument|step"
        r"|element|byte|line)\b",
        r"\b(?:use|in|to|with|from|by|for|of|on|at|using) other <COUNTED><NEXT>|\b(?:causes?|leads? to|results? in"
        r"|gets?|got|reports?|throws?|raises?|generates?|produces?) (?:(?:unexpected|unknown|serious|fatal|potential"
        r"|possible|runtime) )?(?:error|problem|crash|memory leak|exception|issue|bug|warning|segmentation fault"
        r"|race condition)(?=[.,;]|$| (?:if|when|in|and|or|because|during|on)\b)|\b(?:on|in|under) (?:Windows|Linux"
        r"|macOS) (?:system|platform|machine)(?=[.,;]| (?:is|and|or|you)\b)|\b(?:for|in|to|from|with) (?:single|new"
        r"|default|special|separate) <COUNTED><NEXT>"],
        "the article: 'the user', 'a pointer'", kinds="text item"),
    Rule("order of words", [
        r"\b(?:supports?|provides?|contains?|requires?|allows?|offers?|stands|depends|includes|returns) (?:also"
        r"|already|always|automatically|firstly|often|usually)\b(?! (?:be|been|in|on|at|with|when|if)\b)",
        r"\b(?:must|can|should|will|may|has to|have to) be (?:not|already|always|also|at first|firstly|still"
        r"|eventually)\b|\b[Oo]therwise (?:can|is|are|will|must|has|would|does|do|may) (?:not )?(?:the|an?|it|be|this"
        r"|you|report|returned|cause|fail)\b",
        r"\b[Tt]here (?:is|are|was|were|will be|can be|must be) (?:also )?(?:returned|created|performed|executed|used"
        r"|called|allocated|written|sent|stored|generated|started|checked|required|provided|described)\b",
        r"^(?:For|In|On|At|To|By|With|From|After|Under|Behind|During|Through) (?!example|case|which|order)(?:(?!this"
        r"|it|that|the \w+ (?:is|are)\b|which|we|you|they|what)[^,.;: ]+ ){2,6}(?:is|are|can be|must be|will be|was"
        r"|were) (?:also |not )?\w+(?:ed|en|nt) (?:the|an?|its|how|if|whether)\b",
        r"^(?:At|In|For|With|By|On) (?:(?!this|it|that|these|which|more)[^, ]+ ){2,6}(?:does not exist|do not exist"
        r"|is (?:necessary|possible|needed|required) to|exists)\b",
        r"\b(?:if|when|because|so|but|then|also) is (?:necessary|possible|needed|recommended|better|enough|important"
        r"|impossible|not necessary|not possible) to\b|^(?:Is|Was|Are) (?:necessary|possible|needed|not|no"
        r"|recommended)\b|: (?:is|are) (?:no|not) ",
        r"^(?:If|When|Before|After|By default|Once|Until)\b[^,.;]*, (?:also |otherwise |then |only |just "
        r"|generally )*(?:need|needs|recommend|suggest|cannot|can|should) (?!you\b|we\b|I\b|be\b|the\b|a\b|it\b"
        r"|they\b)\w+",
        r", otherwise (?:will|can|report|cause|may)\b|, (?:generally|usually|normally|here|just|only) (?:no|not|need"
        r"|is|will|we just)\b|(?<!do )\b(?:here|also) will (?:not )?\w+",
        r"\b(?<!does )(?<!do )(?<!did )(?<!or )(?<!to )(?<!may )(?<!will )(?<!must )(?<!should )(?<!might )(?<!could "
        r")(?<!would )(?<!can )(?<!and )not support\b",
        r"^(?:Set|Use|Enable|Disable|Increase|Reduce|Add|Turn on) (?:(?!that\b|which\b|if\b|when\b|so\b"
        r"|it\b)[^,.;: ]+ )*(?:can|will|could) (?:reduce|improve|make|increase|lead|avoid|help)\b",
        r"\b(?:the|an?) (?:here|there|by|from|thereby|from the|by the|with the) (?:\w+ )?(?:\w+ed|given|written|taken"
        r"|chosen|sent) \w+|\b(?:is|are|be) again (?:the|free|possible|available)\b|\b(?:change|read|write|access"
        r"|modify|open) (?:simultaneously|separately|already|also) (?:the|an?|one|it)\b|\b[Oo]nly (?:after|when"
        r"|then) [^,;]{5,60} (?:you|it) can\b|^(?:If|When|Once) (?:the )?(?!it|they|you|this|that|there|we|one|not|is"
        r"|any|no)[a-z]+ (?:(?!is|are|was|be|not|than|has|does|do|contains?|requires?|us\w+)[a-z]+ )?(?:set to"
        r"|not set|more than|less than|bigger than|larger than|greater than|same as|equal to)\b",
        r"\bwhich (?:(?:it|he|they) )?(?:in|from|by|on|then|at) (?:the )?(?!this|that|turn|most|some|these|many|all"
        r"|effect|case|fact)[a-z]+(?: [a-z]+)? (?:is|are|has|was|have|can|must|be)\b|\b(?:is|are|was|were|will be"
        r"|can be) (?:performed|executed|returned|created|done) (?:the|an?|its)\b",
        r", (?:when|if) (?:it|they) (?:is|are|has|have) [^,;.]*, (?:the|it|this|they|new)\b"],
        "subject, verb, object"),
    Rule("linked clauses", [
        r"^(?:Although|Though|Even though|Despite)\b[^;.]*, (?:but|however|yet)\b|^(?:As|Since|Because|Due to"
        r"|As soon as|In order)\b[^,;.]*, (?:so|and so) (?!that\b|far\b|long\b|is\b|must\b)\w+|^(?:Because|Since|As"
        r"|Due to)\b[^,;.]*, (?:therefore|thus|hence)\b",
        r"\b(?:reason|cases?|fact|way|moment|condition|sense|meaning|possible|necessary|sure|aware|clear|true"
        r"|guaranteed?|assumed?|ensures?|means|shows?|see|know|decided?|determined?|checked|verify|noted?|note|say"
        r"|said|expect|prevents?|Note|Ensure), (?:why|that|whether)\b(?! (?:is|are|was|can|would|means|might"
        r"|will)\b)",
        r"\b(?:checks?|knows?|sees?|decides?|determines?|asks?|verif(?:y|ies)|defines?|specif(?:y|ies)"
        r"|indicates?), (?:if|whether|how)\b|, (?:to|for|of|with|from|by|under) which (?:it|they|he|you)\b",
        r"^(?:The|A|An|All|Each|Every|Any)(?: \w+){1,4}, (?:that|who|what)\b(?! (?:is|are),)"
        r"|\bthe (?:\w+ )?<COUNTED>s?, that (?:is|are|was|were|has|have|can|will|must|should|may|\w+s) ",
        r"\b(?:until|before|after|once|as soon as|unless|as long as) (?:the|an?|it|they|all|this|every"
        r"|CODE)(?: \w+){0,2} will (?:be|have|not|get)\b",
        r"\b(?:not|n't|cannot) (?:be )?\w+ no (?:more|longer)\b|\breason (?:is|was) because\b"
        r"|\bis because of [a-z]+ing\b|\b[Bb]oth of the two\b|\b[Dd]epend(?:s|ing|ent)? (?:on )?if\b|\babout if\b"
        r"|\b(?:with|by|for|about|from|to|before|without) that (?:the|it|an?|you|they|all)\b",
        r", if (?:not|so) (?:the|specified|then)\b(?!,)|, in (?:this|that) case (?:the|it|an?|they|you|we)\b"
        r"|, default (?:value )?is\b|, one is (?:for|the|used)\b|, (?:and )?another is\b|, (?:therefore|thus|hence"
        r"|moreover|furthermore) (?:the|it|we|you|this|an?|they|all|user)\b",
        r"^(?:The|This|It|There|You|We|Each|All|Both|Every|Currently|Only|Our|These|That|By default) (?!.*\b(?:if"
        r"|when|unless|because|while|once|although|since|whether|where|after|before|until"
        r"|argument)\b.*,)[^,;:()]*\b(?:is|are|was|were|has|have|can|will|must|does|should|may|cannot|takes|uses"
        r"|returns|needs)\b[^,;:()]*, (?:it|this|they|these|other \w+) (?:\w+ )?(?:is|are|was|will|can|must|has|have"
        r"|does|should|may|means|needs|cannot)\b",
        r"\b[a-z]+, that (?:allows?|makes?|leads?|causes?|gives?|permits?|reduces?|increases?|enables?|helps?"
        r"|guarantees?)\b|\b(?:is|are|was) (?:the )?reason (?:of|why|that) (?:the|it|a)\b|\buntil (?:(?:the|it|all"
        r"|they|an?|this) )(?:\w+ ){0,2}(?:not|isn't|doesn't|hasn't|aren't)\b",
        r"\b(?:[Ii]f|[Ww]hen|[Oo]nce|[Aa]fter|[Uu]ntil|[Ww]hile) (?:(?:the|an?|you|it|they) )(?:\w+ )?(?:will"
        r"|shall) (?:be|not|call|have|need|use|pass|set|get)\b",
        r"\w+s, that (?:are|were|have)\b"],
        "one conjunction, and no comma before a clause that defines"),
    Rule("idiom of another language", [
        r"\b(?:his|him|her|he|himself)\b|\b(?:eventually (?:be|can|may|could)|(?:could|may|might"
        r"|can) (?:be )?(?:\w+ )?eventually|actual (?:version|release|moment)|foreseen|serves? for|disposes? over"
        r"|to precise|assure that|has? to be noted|gives? back|given back|is wished|not wished|the further|till the"
        r"|such kind|amongst others|one and the same|without necessity|has not the|have not the|need not to|needn't"
        r"|needs not|in automatic|in an easy way|by this way|on this way|for this aim|above mentioned|below mentioned"
        r"|as follow|as following|plays? no role|plays? an? important role|in parallel way)\b",
        r"\b(?:speed|performance|efficiency|cost|rate) (?:is|becomes|much|will be|more|can be)(?: \w+)? (?:fast|slow"
        r"|quick|faster|slower|quicker)\b|\bmakes? the \w+ (?:speed )?(?:faster|slower)\b|\btime consumption\b"
        r"|\bdetail (?:info\w*|description|usage)\b|\bnumber of times of\b|\blimit value\b|\b(?:convenient|easy"
        r"|difficult) for users? to\b|\b(?:the|to|in|see|use|following) below (?:table|commands?|code|section"
        r"|examples?|figure|options?|steps?|list)\b|\bmulti[- ](?:threads|processes|nodes)\b|\b(?:do|does"
        r"|doing) the (?!multiplication)\w+(?:tion|ization)\b|\bdoing the \w+ing\b",
        r"\b(?:for|by|after|before|without|when|at|on|until) \w+ing of (?:the|an?|all|its)\b|\bthe \w+ing (?:on|off"
        r"|up|out|in|down) of\b|^For (?!example)\w+ing (?:the|an?|of|your|this)\b|^(?:About|Concerning|What concerns"
        r"|How to|Different with|Depend on|According to the different|To the moment|During the work|By the (?:start"
        r"|call|help)|Kindly)\b(?=.*[.,] ?)",
        r"\b(?:returns?|returned) (?:fail|failed|success|failure)\b(?=[.,;]| (?:when|and|or)\b)|\b(?:reports?|throws?"
        r"|returns?|gets?) error(?=[.,;]|$| (?:if|when|and)\b)|\bnever timeout\b|\b[Ii]t (?:exists|lacks) "
        r"|\b[Mm]aybe (?:the|there|it)\b|\bnot enough(?: of\b|\.)|\b(?:works?|runs?|run|behaves?) (?:correct|parallel"
        r"|asynchronous|wrong|good|independent|concurrent|synchronous|normal)<NEXT>|\b(?:enough|suffice) for \w+ing\b"
        r"|\bkindly\b",
        r"\b(?:as usually|in consequence\b|effectuated?|explicited|precised|actualiz\w+|analogical(?:ly)?|unpossible"
        r"|per default|most easy|more easy|upto|atleast|inorder|alot|everytime|incase|infact|eachother|aswell"
        r"|new coming|is obligatory|whole the|bigger|biggest)\b|\bcoming (?:data|request|message|packet"
        r"|connection)s?\b|\bnot (?:yet )?(?:more|anymore)<NEXT>|\bbecomes? (?:unnecessary|error|possible to"
        r"|impossible to|able|same)\b|\b(?:perform|carry out|do|execute|make)(?:s|es)? (?:the "
        r"|an? )?(?:initialization|verification|calculation|computation|synchronization|conversion|installation"
        r"|deletion|creation|modification) of\b",
        r"\b(?:correct|proper|normal|further|right|stable|successful) work\b|\b[Pp]lease be (?:noticed|noted)\b"
        r"|\bbe noticed that\b|\blife time\b|\bquantity of\b|\banyway (?:be )?\w+ed\b|\b(?:merged?|combined?|join"
        r"|collect|collected|connected) together\b|\bmeets? (?:an? |the |some |any )?(?:errors?|problems?|exceptions?"
        r"|questions?)\b|\bwelcome to (?:open|contribute|submit|use)\b|\b[Aa]ttention[:!]|\bbecomes (?:called"
        r"|executed|interrupted|released|freed|deleted|destroyed|created|written|sent|started)\b|\bvalue equals? to\b"
        r"|\b(?:it|this) (?:may|can|will|might) cause (?:the|an?|to) \w+ (?:is|fails?|crash|hang|be)\b"],
        "the English idiom"),
    Rule("no subject", [
        r"\b(?:[Ii]f|[Ww]hen|[Bb]ecause|that|but|so) there (?:no|not|any|some|many|a)\b|\b(?:[Ii]f|[Bb]ecause"
        r"|[Uu]ntil|[Uu]nless|[Aa]lthough|[Bb]efore|[Aa]fter|[Ww]hether|[Aa]s soon as|Once|[Ww]hen"
        r"|[Ss]ince) (?:<FINITE>|don't|can't|must|isn't|wants?|exists?|happens|occurs?|fails?)\b(?! been\b)"
        r"|^Needs? (?:to|not)\b|, or (?:will|would|can) (?:cause|lead|crash|hang|fail|get|happen|report|result|block"
        r"|lose)\b|, (?:isn't|aren't|doesn't|wasn't|needn't|won't) (?!it\b|you\b|they\b)\w+|, so (?:need|must|can"
        r"|cannot|should|will|don't) (?:to |not |call |use )|^(?:By|Through|Using|With|For|To|In order to|As|Since"
        r"|Via|Besides|Without) (?!example)[^,.;]*, (?:also |only |just )?(?:needs?|cannot|can|should|must|may|will"
        r"|could|has) (?!you\b|we\b|be\b|the\b|an?\b|it\b|they\b)\w+|^(?:If|When) (?:wish|need|happens?|use|have"
        r"|not have|no have)\b"],
        "'if it is', 'you must', 'or it fails'"),
    Rule("no, not", [
        r"\b(?:(?:[Nn]obody|[Nn]othing|[Nn]o one|[Nn]o <COUNTED>) (?:doesn't|cannot|isn't|can't|don't|(?:do|does|is"
        r"|will) not)|(?:<COUNTED>|value|data|memory|name|number|size|it|this|that|which|they|still) (?:not"
        r"|no) (?:<ACT>|exists?|works?|allows?|returns?|needs?|contains?|has|guarantees?|match|matches|found|enough"
        r"|supports|knows)|[Nn]either (?:\w+ )?\w+ or|[Uu]nless (?:the|it|you|an?) [^.,;]{0,30}(?: not|n't)|(?:[Ff]or"
        r"|[Tt]o) (?:don't|doesn't))\b|(?:n't|\bnot|\bcannot|\bnever|\bwithout) (?!the\b|yet\b)[a-z]+ (?:(?:the|to|in"
        r"|from|with|by|for|on) )?(?:nothing|nobody|nowhere)\b|(?:n't|\bnot|\bcannot|\bnever|\bwithout) (?:<ACT>"
        r"|\w+ing) no\b|(?<!here )\b(?:is|are|be|was) no (?:necessary|possible|allowed|available|supported|valid"
        r"|needed|safe)\b|\b[Ff]or (?:no|not) (?:to )?(?:<ACT>|block|exceed|be|break|copy|repeat)\b(?!-)"],
        "one negation, and 'does not' before the verb"),
    Rule("two verbs", [
        r"\b(?:(?:is|are|was|were) (?:must|can|should|will|has|have|may|could|would|does)|<MODAL> (?:can|must|may"
        r"|should|able|possible|will|could|to be|has|is)|(?:able|unable|wants?|necessary|try|tries|in order|user"
        r"|caller|possible|required) to (?!need|embed|feed|seed|exceed|proceed|succeed|speed)[a-z]+ed|(?:permits?"
        r"|allows?|enables?|lets|wants?|needs?|tries|try|avoids?|necessary|recommended|required|for|without|before"
        r"|after|by|instead of|besides) <ACT> (?:the|an?|this|it|its|all|any|your|each|CODE|more|better)"
        r"|used for (?:avoid|get|find|create|manage|allocate|detect|protect))\b|\b(?:<MODAL>|to|not|don't"
        r"|doesn't) (?:gets|makes|uses|reads|writes|sends|creates|allocates|contains|needs|waits|takes|receives"
        r"|starts|stops|becomes|causes|happens|fails|checks|finds|keeps)\b(?! of)",
        r"\b(?:is|are|be|was|were) (?:success|fail|failure|timeout|overflow|hang|crash|error|deadlock)<NEXT>"
        r"|\b[Tt]he (?:connect|allocate|create|execute|compare|compress|initialize|compile|decode|verify"
        r"|convert) (?:<FINITE>|of|and|must|should|failed|fails|succeeds|returns)\b|\b(?:is|are|was|were|be"
        r"|been) (?:not )?(?:fill|return|copy|store|move|convert|replace|handle|update|lock|print|pass|save|generate"
        r"|check|use|implement|design)(?=[.,;]| (?:to|by|in|with|for|from|on|as|the|when|if|into|and)\b)"
        r"|\b(?:[Aa]fter|[Bb]efore|[Uu]ntil|[Oo]nce|[Ww]hen|[Ii]f) (?:the|an?) (?:\w+ )?(?:thread|process|program"
        r"|transfer|connection|operation|request|session|server|client|device|timer|job|task) (?:exit|return|end"
        r"|close|stop|crash|expire|run|terminate|begin|start|open|change|reach|receive|connect)\b(?! (?:of|<FINITE>"
        r"|time|code|value|status|handler|point|address|call))",
        r"\b(?:(?:is|are|was|were) (?:not|also|still|only|now) (?:hav|support|need|know|contain|depend|belong|requir"
        r"|allow)ing|happening (?:more|only|because|due)|(?:it|which|API|function|option|method|this|feature|mode"
        r"|flag|class) <MODAL> use (?:only )?(?:in|on|for|from|by|under|at|when|if|after|before))\b"
        r"|\b<MODAL>(?: not)? be (?:(?!call|consider|nam|assign|grant|deni|pass|allow|offer|requir)\w+ed|read"
        r"|written) (?:the|an?) (?!same|first|next|last|moment|number|maximum|time|few|second|lot|bit|little)[a-z]+",
        r"\b(?:(?:until|if|when|or|before|after|once|so|because|should) (?:the|an?"
        r"|all) (?:\w+ )?<COUNTED>s? be (?:\w+ed|sent|set|lost|full|empty|in)|(?:made|makes?|making|lets?"
        r"|letting) (?:the|an?|it|them|this|all|your) (?:\w+ )?to be \w+(?:ed|en|n't|t)|(?:causes?|leads? to"
        r"|results? in|avoids?|prevents?) (?:the|an?|your|this|that) (?:\w+ )?(?:<COUNTED>|library|data) (?:crash"
        r"|fail|hang|<FINITE>|fails|hangs|crashes|become|becomes|be|lost))\b"],
        "one finite verb, and the form that it needs"),
    Rule("clause after a preposition", [
        r"\b(?:(?:[Dd]uring|[Dd]ue to|[Dd]espite|[Bb]ecause of|[Bb]esides|[Ww]ithout|[Ii]nstead of|[Aa]ccording to"
        r"|[Tt]hanks to|[Rr]egardless of|[Ee]xcept|[Bb]y|[Ii]n case of) (?:they|we|he|you <FINITE>|you (?:must|want"
        r"|call|use))|[Dd]uring you|(?:[Dd]espite|[Bb]esides|[Ii]nstead of|[Tt]hanks to|[Rr]egardless of"
        r"|[Ii]n exchange for|[Ii]n spite of|[Aa]part from|[Ee]xcept for) (?:it|this|there|(?:the|an?|your"
        r"|its) (?:\w+ ){1,2})(?<!you )(?<!that )(?:<FINITE>|falls?|becomes?|fails?)|for (?:the|your|our"
        r"|its) [a-z]+ (?:is|are|does|do|can|will) not \w+)\b|^Even (?:the|an?|you|it|this|there|all"
        r"|we) [^,]*\b(?:<FINITE>|use|set|call|fails?|\w+s)\b[^,]*, (?:the|it|you|this|they|we|there|all|CODE|an?)\b",
        r"\b(?:(?:[Dd]ue to|[Bb]ecause of|[Oo]wing to|[Aa]s a result of) (?:which|that|what)"
        r"|[Ee]xcept(?:ing)? (?:for )?(?:the |in )?cases? (?:that|when|if)|[Ee]xcept of|(?:[Bb]ecause|[Aa]lthough"
        r"|[Ww]hereas|[Ss]o that|[Ee]ven if|[Ee]ven though), (?:the|it|this|they|we|you|there|an?))\b"
        r"|\b[Tt]hanks to (?:the|an?|this|that) (?:bug|error|problem|lack|limitation|failure|defect"
        r"|absence)\b(?! report)|, than\b|(?<!if )\b(?:possible|necessary|important|recommended|able|enough|allowed"
        r"|sufficient|easy|intended|needed|tries|try|wants?|attempt|ability|useful|sense), (?:to|that|for to"
        r"|in order)\b",
        r"\b(?:[Rr]easons? (?:(?:why|that|of|for)\b)?[^.,;]*\b(?:is|was) (?:that )?(?:because|due to)"
        r"|[Rr]easons?, (?:because|why|that|for)|[Ii]f [^.,;]*\bwould [^,;.]*, [^.;]*\bwould|[Ww]hether (?:the|it"
        r"|this|all) [^.,;]* is (?:which|what|where|how|who)|judge[sd]? (?:whether|if|that|the))\b"
        r"|\b[Ii]f you would (?!like|prefer|rather|otherwise|normally|want|need|also|ever)\w+"],
        "a conjunction: 'because the', 'even if the', 'while you'"),
    Rule("relative clause", [
        r"\b(?:which (?:size|name|value|length|type|key|address|number|index|state|contents?|owner) (?:is|are|was|has"
        r"|exceeds?|equals?|differs?|begins?|starts?)|which (?:you|they) (?:can |must |should |will |may "
        r"|have to )?\w+ (?:it|them)|the which|(?:all|everything|something|anything|thing) what (?:is|are|you|the|we"
        r"|it))\b|, which it (?:can|may|will|is|has|must)\b|\b(?:<COUNTED>|tolerance|precision|data|memory|number"
        r"|size|field|class|member|algorithm"
        r"|address),? who\b(?<!user who)(?<!caller who)(?<!user, who)(?<!caller, who)|(?<!So)(?<!Instead), what (?:is"
        r"|means|makes|leads|causes|can|would|allows|gives|results|will|could|helps|reduces)\b(?! returned)"],
        "'whose', 'that', 'which'"),
    Rule("place of a word", [
        r"\b(?:(?:can|will|must|may|could) (?:them|him|us)|(?!(?:is|was|has|this|its|as|does|us|thus|process|values"
        r"|exists|arrays|asterisks)\b)[a-z]{2,}s (?:then|automatically|simply|correctly|immediately) (?:always|also"
        r"|only|the|an?|all|its|each|every)|(?:starts?|begins?|continues?|runs?|stop|ends?|used|called|sent) already"
        r"|already before|enough (?:large|big|long|small|fast|high|good)|as possible as|(?:assigns?|gives?|returns?"
        r"|sends?|adds?|attaches|shows?|offers?|allocates?) to (?:it|them|him|you|us|the <COUNTED>) (?:the|an?|all"
        r"|some|its|one))\b|^(?:In|On|At|From|With|To|For|Under|Below|Above) (?:this|the|these|each"
        r"|every) [a-z]+ (?:is|are) (?:also )?\w+(?:ed|en|wn)\b|^(?:Here|Below|Further|Next) (?:is|are) \w+(?:ed|en"
        r"|wn)\b",
        r"\b(?:(?:(?:know|see|show|explain|describe|decide|determine|check|define)s?|about) (?:how|why|where|what"
        r"|when) (?:<FINITE>|should|must) (?:the|you|it|this|we|an?|they|CODE)|[Tt]here (?:is|was|will be"
        r"|can be) (?:not |also )?(?:possible|necessary|needed|important|obvious|recommended|useful|allowed"
        r"|impossible))\b"],
        "subject, verb, object, and 'already' before the verb"),
    Rule("false friend", [
        r"\b(?:eventual (?:errors?|problems?|changes|failures?|exceptions?|delays?|loss)"
        r"|[Aa]ctually (?:supports? only|supported|works only|there (?:is|are)|available|limited)|(?:is|are|was"
        r"|were) pretended|(?:library|module|class|program|it|which|we|you) disposes? of|reserved to (?:the|CODE|an?)"
        r"|important (?:amount|number|quantity|delay) of|(?:passed|given|received|taken|takes?) (?:in|like"
        r"|by) (?:parameter|argument|entry|charge|account)|it is (?:needed|wished|obligatory|forbidden|prohibited"
        r"|convenient) (?:to|that)|(?:like|such as) for example|(?:differents|followings|needful|inbuilt|updation))\b"
        r"|\b(?:[Oo]f (?:this|that|such) (?:way|manner)|(?:set|initiali[sz]ed|starts?|begins?|put) in (?:zero|\d+"
        r"|true|false|NULL))<NEXT>|\bpretends? to (?!be)|\bcomposed (?:by|from) (?!the)",
        r"\b(?:(?:wants?|desires?) that (?:the|you|it|a|an|this|all|they)|(?:has|have) (?:no )?sense|(?:[Ee]xplains?"
        r"|[Dd]escribes?|[Ss]uggests?|[Mm]entions?|[Ss]ays?) (?:you|us|them) (?:how|what|that|to|the|a|an|if|whether)"
        r"|(?:finish|finished|finishes|stops?|stopped|succeeds?|succeeded|arrives?|arrived) to (?!(?:the|an?|be|its?"
        r"|work)\b)[a-z]+)\b|\b(?:prevents?|avoids?|forbids?|hinders?) (?:that (?:the|it|an?|you)|to|(?:the|it|users?"
        r"|you|them) (?:\w+ )?to)\b(?! the\b)(?<!need to)(?<!access to)",
        r"\b(?:in (?:the )?(?:execution|compilation|link|startup|load|start|boot) time|at (?:\w+ing|usage|call"
        r"|creation) of|in (?:the )?next (?:versions|releases)|nearest (?:future|version|release))\b|\bat (?:compile"
        r"|execution|start|run|build)[.,;]|\b(?:the|its) next (?:limitations?|restrictions?|conditions?|reasons?"
        r"|\w+):|^The given (?:function|method|class|library|option|module|mode) (?:allows|must|<FINITE>)\b",
        r"\b(?:(?:is|are|was|were|be) reali[sz]ed (?:in|by|as|via|using|with|through|on)|(?:begins?|starts?|reads?"
        r"|counts?|copied|again) (?:again )?since the (?:start|begin|beginning|first|end)|(?:\w+est|each|many|any"
        r"|most|all|none|several|every) from (?:them|these|those)|[Ee]ach time that the|[Ii]n (?:this|all|some|most"
        r"|old|older) (?:old |new )?platforms?|wait(?:s|ing)? (?:on|to|till|of) the (?:end|finish|start"
        r"|completion))\b|, (?:that's|that is|this is) why\b|\b(?:ability|attempt|permission|capability"
        r"|necessity) (?:of|for) \w+ing\b(?<!string)"],
        "the English word: 'possible' for 'eventual', 'currently' for 'actually'"),
    Rule("Asian English", [
        r"\b(?:[Uu]nder (?:this|that|such|the) (?:situation|case|mode|condition)s?|(?:relevant|related"
        r"|irrelevant) with|(?:[Oo]ccurs?|happens?|happened|appears?|arises?) (?:an? |the |some |any )?(?:error"
        r"|exception|problem|deadlock|crash|conflict)|(?:costs?|spends?|takes?|uses?|needs?) (?:very )?(?:much|many"
        r"|big|large) (?:time|memory|space|resources?)|(?:fast|quick|big|slow) speed)\b|\b(?:open|close|opens"
        r"|closes) the (?:\w+ )?(?:feature|option|function|mode|flag|macro|optimization|log)<NEXT>",
        r"\b(?:(?:regarding|concerning) to|at the timing|[Tt]here (?:is|are|may be) (?:the |no )?(?:possibility|fear"
        r"|danger|necessity) (?:that|to|of)|(?:[Aa]s|[Ww]hen) (?:the )?(?:\w+ )?(?:number|size|amount|count"
        r"|length) (?:of \w+ )?(?:increase|decrease|grow|become)|(?:by|from) (?:the )?(?:user|caller|client|library"
        r"|application) side|(?:at|from) (?:your|our|my|the user|the caller|user) end)\b|\b(?:many|few|several"
        r"|a) (?:memory|software|information|overhead)<NEXT>|\bin details[.,]|\b(?:[Ii]n|at) (?:the )?below[.,:]"
        r"|^Following (?:is|are)\b|^As for (?:the|this|an?) \w+ (?:which|that|of)\b|\bevery (?:one|1) (?:second"
        r"|minute|hour|day|step|call|byte|time)",
        r"\b(?:[Aa]lmost (?:[a-z]+[^us]s (?:<FINITE>|use|support|must|should|need)|of|cases|users)|(?:takes?|for"
        r"|after|within|waits?|needs?) few \w+s)\b|\b(?:(?:is|are|be) used to [a-z]+(?:tion|ment)|(?:makes?|made"
        r"|become) (?:faster|slower|bigger|smaller|easier to|possible to|easy to|difficult to))<NEXT>|\b(?:[Mm]ost"
        r"|[Mm]any|[Ss]ome|[Ss]everal|[Ff]ew) of (?!(?:the|these|this|its|your|our|us|his|CODE)\b)[a-z]+s\b(?!')"
        r"|\d+ ?(?:[GMKk]i?B|bytes) (?:size|length|timeout)<NEXT>",
        r"\b(?:then only the|(?:start|beginning|startup|here|there) itself|(?:more|less) number of|compris(?:es?"
        r"|ing) of|(?:facing|faces?|faced) (?:an? |the |any |some )?(?:issue|error|problem|difficult)\w*"
        r"|the same \w+ (?:than|like)|same than|(?:as|so) (?:many|much|long|large|fast|big|small) than|(?:different"
        r"|same|independent|equal) each other)\b|\b(?:returns|frees|deletes|closes) the same[.,]"
        r"|(?<!he )(?<!\w )\b[Ss]ame (?:is|can|has to|should)\b|\b(?:gives?|giving|shows?|showing) (?:error|issue"
        r"|exception|problem|warning)(?=[.,;]| (?:if|when|in|and|or|because)\b)|\b[Ww]hile (?:the )?(?:execution"
        r"|initialization|transfer|startup|operation|call|loop)(?: of|,|\.)|\bafter (?:using|finishing|reading)[.,]"],
        "plain wording"),
    Rule("one, gets", [
        r"\b[Oo]ne (?:can|must|has to|should|may|cannot|needs)\b(?! (?:not )?be\b)",
        r"\bgets (?:\w+ly |then |only )?(?:(?!confused)\w+ed|written|sent|lost|overwritten)\b"],
        "'you can', and 'is called'"),
    Rule("respectively", [
        r"\brespectively (?:-?\d|the|an?|in|by|with|of|to|from)\b"],
        "'or'"),
    Rule("otherwise after a comma", [
        r", otherwise (?:the|it|an?|this|they|you|there|we)\b"],
        "'or', or a new sentence"),
    Rule("please", [
        r"\bplease\b"],
        "the imperative"),
]
for rule in FOREIGN:
    rule.limit = 1
